"""The situations of the ACL matrix: the ACLs in force, and the client that sends the requests.

The names of resources are short: `ta1` and `ta2` are topics with the prefix `ta`, `tb` is another
one; `ga1` and so on are groups, `xa1` and so on transactional ids. An ACL on a delegation token has
the token's name in `TOKENS` of probes.py in place of its id, or a prefix of that.
"""

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.model.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    AclEntry,
    AclOperation,
    Binding,
    ResourcePattern,
    ResourceType,
)
from odradek.security.acls import Requester

ALICE: Final = "User:alice"
BOB: Final = "User:bob"
ADMIN: Final = "User:admin"  # a super user
HOST: Final = "127.0.0.1"
OTHER_HOST: Final = "127.0.0.2"
ADMINISTRATOR: Final = Requester(ADMIN, HOST)

_Op = AclOperation
TOPIC: Final = ResourceType.TOPIC
GROUP: Final = ResourceType.GROUP
CLUSTER: Final = ResourceType.CLUSTER
TRANSACTION: Final = ResourceType.TRANSACTIONAL_ID
TOKEN: Final = ResourceType.DELEGATION_TOKEN
USER: Final = ResourceType.USER

# The operations of each resource type, as `AclEntry.supportedOperations` of Kafka lists them.
_OPERATIONS: Final = {
    **OPERATIONS,
    TRANSACTION: (_Op.DESCRIBE, _Op.WRITE),
    TOKEN: (_Op.DESCRIBE,),
    USER: (_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS),
}
_LETTERS: Final = {TOPIC: "t", GROUP: "g", TRANSACTION: "x"}


class Situation(NamedTuple):
    """The ACLs, the client, and the value of `allow.everyone.if.no.acl.found`."""

    name: str
    acls: tuple[Binding, ...]
    client: Requester = Requester(ALICE, HOST)
    allow_if_no_acl: bool = False

    def __str__(self) -> str:
        return self.name


def allow(
    kind: ResourceType,
    name: str = WILDCARD,
    operation: AclOperation = _Op.ALL,
    *,
    prefixed: bool = False,
    principal: str = ALICE,
    host: str = WILDCARD,
    allowed: bool = True,
) -> Binding:
    """An ACL that allows; on all resources of a type unless a name is given."""
    if kind is CLUSTER:
        name = CLUSTER_NAME
    pattern = ResourcePattern(kind, name, prefixed)
    return Binding(pattern, AclEntry(principal, host, operation, allowed))


def deny(
    kind: ResourceType,
    name: str = WILDCARD,
    operation: AclOperation = _Op.ALL,
    *,
    prefixed: bool = False,
    principal: str = ALICE,
    host: str = WILDCARD,
) -> Binding:
    """As `allow`, for an ACL that denies."""
    return allow(
        kind, name, operation, prefixed=prefixed, principal=principal, host=host, allowed=False
    )


def _everything(*but: ResourceType) -> tuple[Binding, ...]:
    return tuple(allow(kind) for kind in _OPERATIONS if kind not in but)


def _single_operations() -> Iterator[Situation]:
    """One operation is allowed; all but one are."""
    yield Situation("no ACL", ())
    yield Situation("everything", _everything())
    for kind, operations in _OPERATIONS.items():
        for operation in (*operations, _Op.ALL):
            what = f"{operation.name} {kind.name}"
            yield Situation(f"only {what}", (allow(kind, operation=operation),))
            denied = deny(kind, operation=operation)
            yield Situation(f"all but {what}", (*_everything(), denied))


def _patterns() -> Iterator[Situation]:
    """Patterns of one resource type; on the others everything is allowed, or nothing."""
    for kind, letter in _LETTERS.items():
        a1, a = f"{letter}a1", f"{letter}a"
        b, b_deny = f"{letter}b", deny(kind, f"{letter}b", prefixed=True)
        acls = {
            f"literal {a1}": (allow(kind, a1),),
            f"literal {b}": (allow(kind, b),),
            f"prefix {a}": (allow(kind, a, prefixed=True),),
            f"prefix {a1}": (allow(kind, a1, prefixed=True),),
            f"prefix {a1}0": (allow(kind, f"{a1}0", prefixed=True),),
            f"literal {a} and {b}": (allow(kind, a), allow(kind, b)),
            f"prefix *, which is no wildcard, and {b}": (
                allow(kind, WILDCARD, prefixed=True),
                allow(kind, b),
            ),
            f"all but literal {a1}": (allow(kind), deny(kind, a1)),
            f"all but prefix {a}": (allow(kind), deny(kind, a, prefixed=True)),
            f"prefix {a} but {a1}": (allow(kind, a, prefixed=True), deny(kind, a1)),
            f"literal {a1} but {letter}*": (allow(kind, a1), deny(kind)),
            f"literal {a1} and a Deny elsewhere": (allow(kind, a1), b_deny),
            f"read prefix {a}, write {b}": (
                allow(kind, a, _Op.READ, prefixed=True),
                allow(kind, b, _Op.WRITE),
            ),
            f"write prefix {a}, no write {a1}": (
                allow(kind, a, _Op.WRITE, prefixed=True),
                deny(kind, a1, _Op.WRITE),
            ),
            f"describe {a1}, no read": (
                allow(kind, a1, _Op.DESCRIBE),
                deny(kind, a1, _Op.READ),
            ),
            f"read {a1}, no describe": (
                allow(kind, a1, _Op.READ),
                deny(kind, a1, _Op.DESCRIBE),
            ),
        }
        acls = {name: _supported(kind, found) for name, found in acls.items()}
        for name, found in acls.items():
            yield Situation(f"{kind.name}: {name}", (*_everything(kind), *found))
            yield Situation(f"only {kind.name}: {name}", found)


def _supported(kind: ResourceType, acls: tuple[Binding, ...]) -> tuple[Binding, ...]:
    """Only ACLs with operations of this resource type, because CreateAcls refuses others."""
    operations = {*_OPERATIONS[kind], _Op.ALL}
    return tuple(acl for acl in acls if acl.entry.operation in operations)


def _for_all(allowed: bool, *, principal: str = ALICE, host: str = WILDCARD) -> tuple[Binding, ...]:
    make = allow if allowed else deny
    return tuple(make(kind, principal=principal, host=host) for kind in _OPERATIONS)


def _principals() -> Iterator[Situation]:
    anyone = _for_all(True, principal="User:*")
    bob = Requester(BOB, HOST)
    yield Situation("User:*", anyone)
    yield Situation("another principal", _for_all(True, principal=BOB))
    yield Situation("a principal of another type", _for_all(True, principal="Group:alice"))
    yield Situation("a longer name", _for_all(True, principal="User:alice2"))
    yield Situation("another case", _for_all(True, principal="User:Alice"))
    yield Situation("User:* but alice", (*anyone, *_for_all(False)))
    yield Situation("User:* but bob", (*anyone, *_for_all(False, principal=BOB)))
    yield Situation("bob, User:* but bob", (*anyone, *_for_all(False, principal=BOB)), bob)
    yield Situation("alice but User:*", (*_for_all(True), *_for_all(False, principal="User:*")))
    super_user = Requester(ADMIN, HOST)
    yield Situation("a super user without ACLs", (), super_user)
    yield Situation("a denied super user", _for_all(False, principal="User:*"), super_user)


def _hosts() -> Iterator[Situation]:
    acls = {
        "host 1": _for_all(True, host=HOST),
        "host 2": _for_all(True, host=OTHER_HOST),
        "all hosts but 2": (*_for_all(True), *_for_all(False, host=OTHER_HOST)),
        "host 1 but no host": (*_for_all(True, host=HOST), *_for_all(False)),
        "User:* on host 2": _for_all(True, principal="User:*", host=OTHER_HOST),
    }
    for name, found in acls.items():
        yield Situation(f"{name}, from 1", found)
        yield Situation(f"{name}, from 2", found, Requester(ALICE, OTHER_HOST))


def _open() -> Iterator[Situation]:
    """`allow.everyone.if.no.acl.found`."""
    others = {
        "no ACL": (),
        "an ACL of bob on each type": _for_all(True, principal=BOB),
        "an ACL of bob on a1": tuple(
            allow(kind, f"{letter}a1", principal=BOB) for kind, letter in _LETTERS.items()
        ),
        "an ACL of bob on the cluster": (allow(CLUSTER, principal=BOB),),
        "a Deny of Write on all topics": (deny(TOPIC, operation=_Op.WRITE),),
        "a Deny of Write on prefix ta": (deny(TOPIC, "ta", _Op.WRITE, prefixed=True),),
        "a Deny of Describe on ta1, ga1, xa1": tuple(
            deny(kind, f"{letter}a1", _Op.DESCRIBE) for kind, letter in _LETTERS.items()
        ),
        "Read of ta1 for alice": (allow(TOPIC, "ta1", _Op.READ),),
        "a Deny of everything": _for_all(False),
    }
    for name, acls in others.items():
        yield Situation(f"open: {name}", acls, allow_if_no_acl=True)


def _tokens() -> Iterator[Situation]:
    """Patterns of owners of delegation tokens, and of tokens."""
    make, see = _Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS
    acls = {
        "literal User:bob": (allow(USER, BOB),),
        "create for User:bob": (allow(USER, BOB, make),),
        "see those of User:bob": (allow(USER, BOB, see),),
        "see those of User:alice": (allow(USER, ALICE, see),),
        "see those of prefix User:": (allow(USER, "User:", see, prefixed=True),),
        "see those of bob, without the type": (allow(USER, "bob", see),),
        "create for Group:staff": (allow(USER, "Group:staff", make),),
        "all users but User:bob": (allow(USER), deny(USER, BOB)),
        "all users but User:alice": (allow(USER), deny(USER, ALICE)),
        "the token bobs": (allow(TOKEN, "bobs"),),
        "the token bobs, by a prefix": (allow(TOKEN, "bobs", prefixed=True),),
        "all tokens but bobs": (allow(TOKEN), deny(TOKEN, "bobs")),
        "no token of alice": (deny(TOKEN, "own"), deny(TOKEN, "requested")),
        "a denied token of a user who may be seen": (allow(USER, BOB), deny(TOKEN, "bobs")),
        "a token of a user who may not be seen": (allow(TOKEN, "bobs"), deny(USER, BOB)),
    }
    for name, found in acls.items():
        yield Situation(f"tokens: {name}", found)
        if not any(acl.entry.allowed for acl in found) or "User" not in name:
            yield Situation(f"tokens: {name}, and everything else", (*_everything(TOKEN), *found))


def _drawn() -> Iterator[Situation]:
    drawn = random.Random(39)
    for number in range(40):
        acls = tuple(dict.fromkeys(_draw(drawn) for _ in range(drawn.randrange(3, 12))))
        client = Requester(drawn.choice([ALICE, ALICE, BOB]), drawn.choice([HOST, OTHER_HOST]))
        yield Situation(f"drawn {number}", acls, client, number >= 30)


def _draw(drawn: random.Random) -> Binding:
    kind = drawn.choice([TOPIC, TOPIC, TOPIC, GROUP, GROUP, TRANSACTION, TRANSACTION, CLUSTER])
    operations = [*_OPERATIONS[kind], _Op.ALL, _Op.ALL]
    letter = _LETTERS.get(kind, "")
    name, prefixed = drawn.choice(
        [
            (WILDCARD, False),
            (f"{letter}a", True),
            (f"{letter}a1", False),
            (f"{letter}a1", True),
            (f"{letter}a2", False),
            (f"{letter}b", False),
            (f"{letter}a9", False),
        ]
    )
    return allow(
        kind,
        name,
        drawn.choice(operations),
        prefixed=prefixed and kind is not CLUSTER,
        principal=drawn.choice([ALICE, ALICE, "User:*", BOB]),
        host=drawn.choice([WILDCARD, WILDCARD, HOST, OTHER_HOST]),
        allowed=drawn.random() < 0.7,
    )


def _all() -> tuple[Situation, ...]:
    found = [
        *_single_operations(),
        *_patterns(),
        *_principals(),
        *_hosts(),
        *_tokens(),
        *_drawn(),
        *_open(),
    ]
    # The option is the broker's: those with another value come last.
    return tuple(sorted(found, key=lambda situation: situation.allow_if_no_acl))


SITUATIONS: Final = _all()
