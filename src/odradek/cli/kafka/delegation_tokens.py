"""`kafka-delegation-tokens`: creates, renews, expires and describes delegation tokens.

Behaviour, flags and texts follow Kafka 3.9's `DelegationTokenCommand`, except for two faults of it:
without `--owner-principal` it describes no token (its help promises all that the user may see), and
a period that is not a number ends it with a NullPointerException.
"""

import base64
import binascii
import string
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from odradek.cli.connect import ClientError, properties_of, with_cluster
from odradek.cli.failures import IllegalArgumentError, java_text
from odradek.cli.kafka.support.dates import java_date
from odradek.cli.kafka.support.flags import Flags, Parser, UsageError
from odradek.cli.kafka.support.java import hash_order, int_list, string_hash
from odradek.client.admin.delegation_tokens import (
    Token,
    create_token,
    describe_tokens,
    expire_token,
    renew_token,
)
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, OdradekError
from odradek.model.printable import printable

_ROW: Final = "{:15} {:30} {:15} {:15} {:25} {:15} {:15} {:15}"
_HEAD: Final = (
    "TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE",
)  # fmt: skip
_BASE64: Final = frozenset(f"{string.ascii_letters}{string.digits}+/=")
_DATE: Final = "yyyy-MM-dd'T'HH:mm"

# What each action needs, and what it cannot be used with.
_NEEDED: Final = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
    "describe": (),
}
_INVALID: Final = {
    "create": ("hmac", "renew-time-period", "expiry-time-period"),
    "renew": (
        "renewer-principal", "max-life-time-period", "expiry-time-period", "owner-principal",
    ),
    "expire": ("renew", "max-life-time-period", "renew-time-period", "owner-principal"),
    "describe": (
        "renew-time-period", "renewer-principal", "hmac", "max-life-time-period",
        "expiry-time-period",
    ),
}  # fmt: skip
# The first request of Kafka's tool, which its message names when no broker answers.
_CALLS: Final = {action: f"{action}DelegationToken" for action in _NEEDED}

_Work = Callable[[Cluster], Awaitable[None]]


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments)
    action = _checked(parser, flags)
    try:
        properties = properties_of(flags.value("command-config"))
        work = _ACTIONS[action](flags)

        async def done(cluster: Cluster) -> int:
            await work(cluster)
            return 0

        servers = flags.text("bootstrap-server")
        return with_cluster(servers, properties, done, call=_CALLS[action])
    except UsageError:
        raise
    except ClientError as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)
    except (OdradekError, ConnectionError) as error:
        sys.stdout.flush()
        print(java_text(error) if isinstance(error, ApiError) else error, file=sys.stderr)
    return 1


def command_line() -> Parser:
    parser = Parser("This tool helps to create, renew, expire, or describe delegation tokens.")
    parser.value("bootstrap-server", metavar="host:port,...", help="Brokers to connect to.")
    text = "Client properties, one key=value a line: a user and its password, or a certificate."
    parser.value("command-config", metavar="file", help=text)
    parser.flag("create", help="Create a token.")
    parser.flag("renew", help="Let a token expire later.")
    parser.flag("expire", help="Let a token expire sooner, or remove it.")
    parser.flag("describe", help="Show the tokens that the user may see.")
    parser.value(
        "owner-principal", metavar="User:name",
        help="With --create: the owner, if it is another user. With --describe: only tokens of "
        "these owners, requesters and renewers.",
    )  # fmt: skip
    parser.value("renewer-principal", metavar="User:name", help="With --create: who may renew it.")
    parser.value(
        "max-life-time-period", metavar="ms",
        help="How long it can be renewed; -1: delegation.token.max.lifetime.ms of the broker.",
    )  # fmt: skip
    parser.value(
        "renew-time-period", metavar="ms",
        help="From now; -1: delegation.token.expiry.time.ms of the broker.",
    )  # fmt: skip
    parser.value("expiry-time-period", metavar="ms", help="From now; -1: remove it at once.")
    parser.value("hmac", metavar="base64", help="The HMAC of the token.")
    parser.common()
    return parser


def _checked(parser: Parser, flags: Flags) -> str:
    """The action, if all options go together."""
    actions = [action for action in _NEEDED if flags.has(action)]
    if len(actions) != 1:
        parser.fail(
            "Command must include exactly one action: --create, --renew, --expire or --describe"
        )
    (action,) = actions
    parser.require(flags, "bootstrap-server", "command-config", *_NEEDED[action])
    # Kafka's tool has them in a hash set.
    parser.refuse(flags, action, hash_order(_INVALID[action], lambda name: 31 + string_hash(name)))
    return action


def _create(flags: Flags) -> _Work:
    renewers = _principals(flags, "renewer-principal")
    lifetime_ms = _period(flags, "max-life-time-period")
    print(
        f"Calling create token operation with renewers :{int_list(renewers)} , "
        f"max-life-time-period :{lifetime_ms}"
    )
    owners = _principals(flags, "owner-principal")

    async def work(cluster: Cluster) -> None:
        token = await create_token(
            cluster,
            owner=owners[0] if owners else None,
            renewers=renewers,
            lifetime_ms=lifetime_ms,
        )
        print(f"Created delegation token with tokenId : {token.token_id}\n")
        _print_table([token])

    return work


def _renew(flags: Flags) -> _Work:
    return _change_end(flags, "renew", "renew-time-period", renew_token)


def _expire(flags: Flags) -> _Work:
    return _change_end(flags, "expire", "expiry-time-period", expire_token)


def _change_end(
    flags: Flags,
    verb: str,
    option: str,
    change: Callable[[Cluster, bytes, int], Awaitable[int]],
) -> _Work:
    period_ms = _period(flags, option)
    print(
        f"Calling {verb} token operation with hmac :{flags.text('hmac')} , "
        f"{verb}-time-period :{period_ms}"
    )
    mac = _hmac(flags)

    async def work(cluster: Cluster) -> None:
        expires_ms = await change(cluster, mac, period_ms)
        print(f"Completed {verb} operation. New expiry date : {_date(expires_ms)}")

    return work


def _describe(flags: Flags) -> _Work:
    owners = _principals(flags, "owner-principal")
    whose = f"owners: {int_list(owners)}" if owners else "current user."
    print(f"Calling describe token operation for {whose}")

    async def work(cluster: Cluster) -> None:
        tokens = await describe_tokens(cluster, owners or None)
        print(f"Total number of tokens : {len(tokens)}")
        _print_table(tokens)

    return work


_ACTIONS: Final = {
    "create": _create,
    "renew": _renew,
    "expire": _expire,
    "describe": _describe,
}


def _principals(flags: Flags, name: str) -> list[str]:
    principals = flags.values(name)
    for principal in principals:
        kind, _, rest = principal.partition(":")
        if not kind or not rest:
            raise IllegalArgumentError(
                "expected a string in format principalType:principalName but got " + principal
            )
    return principals


def _period(flags: Flags, name: str) -> int:
    period_ms = flags.integer(name, bits=64)
    return -1 if period_ms is None else period_ms


def _hmac(flags: Flags) -> bytes:
    text = flags.text("hmac")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        illegal = next((letter for letter in text if letter not in _BASE64), None)
        why = "must be base64" if illegal is None else f"Illegal base64 character {ord(illegal):x}"
        raise IllegalArgumentError(why) from None


def _print_table(tokens: Sequence[Token]) -> None:
    print(_ROW.format(*_HEAD))
    for token in tokens:
        times = (token.issued_ms, token.expires_ms, token.expires_ms_max)
        print()
        print(
            _ROW.format(
                token.token_id,
                base64.b64encode(token.hmac).decode(),
                printable(token.owner),
                printable(token.requester),
                printable(int_list(token.renewers)),
                *map(_date, times),
            )
        )


def _date(moment_ms: int) -> str:
    return java_date(moment_ms, _DATE)
