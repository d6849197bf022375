"""ACLs, quotas and SCRAM credentials are stored in Kafka's znodes and listed as stored."""

import base64
import hashlib
import hmac

import pytest

from odradek.broker.admin.acls import (
    PATTERN_ANY,
    PATTERN_LITERAL,
    PATTERN_MATCH,
    PATTERN_PREFIXED,
    AclAdmin,
    AclFilter,
    check_new,
)
from odradek.broker.admin.clients import (
    DEFAULT,
    EXACT,
    SPECIFIED,
    ClientAdmin,
    Component,
    check_scram,
    scram_credential,
)
from odradek.coord.layout_config import encode_config
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.model.acl import AclEntry, AclOperation, Binding, ResourcePattern, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.sim.world.loop import run

TOPIC = ResourceType.TOPIC
READ = AclEntry("User:a", "*", AclOperation.READ, allowed=True)
WRITE = AclEntry("User:a", "*", AclOperation.WRITE, allowed=True)
ALL = AclFilter(ResourceType.ANY, None, PATTERN_ANY, None, None, AclOperation.ANY, 1)


def on(name, *, prefixed=False, kind=TOPIC):
    return ResourcePattern(kind, name, prefixed)


async def opened(tree=None):
    store = MemoryStore(tree or MemoryTree())
    await store.open()
    return store


def test_acls_stand_in_kafkas_nodes_with_a_notice_for_each_pattern():
    async def story():
        store = await opened()
        acls = AclAdmin(store, is_configured=True)
        await acls.create([Binding(on("t"), READ), Binding(on("t"), WRITE)])
        await acls.create([Binding(on("p", prefixed=True), READ)])

        data, _ = await store.get("/kafka-acl/Topic/t")
        assert data.startswith(b'{"acls":[{"principal":"User:a","permissionType":"Allow"')
        assert (await store.get("/kafka-acl-extended/prefixed/Topic/p"))[0]
        assert await store.children("/kafka-acl-changes") == ["acl_changes_0000000000"]
        assert await store.children("/kafka-acl-extended-changes") == ["acl_changes_0000000000"]
        assert await acls.describe(ALL) == [
            Binding(on("t"), READ),
            Binding(on("t"), WRITE),
            Binding(on("p", prefixed=True), READ),
        ]

    run(story())


def test_an_acl_that_is_there_is_made_again_without_a_notice():
    async def story():
        store = await opened()
        acls = AclAdmin(store, is_configured=True)
        for _ in range(2):
            await acls.create([Binding(on("t"), READ)])

        assert len(await store.children("/kafka-acl-changes")) == 1

    run(story())


def test_the_node_goes_with_its_last_acl():
    async def story():
        store = await opened()
        acls = AclAdmin(store, is_configured=True)
        await acls.create([Binding(on("t"), READ), Binding(on("t"), WRITE)])
        await acls.delete([Binding(on("t"), READ)])
        assert await acls.describe(ALL) == [Binding(on("t"), WRITE)]
        await acls.delete([Binding(on("t"), WRITE)])

        assert await store.exists("/kafka-acl/Topic/t") is None
        assert await acls.describe(ALL) == []

    run(story())


def test_two_brokers_that_write_at_once_lose_nothing():
    async def story():
        tree = MemoryTree()
        one, other = AclAdmin(await opened(tree), is_configured=True), await opened(tree)
        await one.create([Binding(on("t"), READ)])
        real, asked = one._store.multi, []

        async def multi(operations):
            if not asked:
                asked.append(operations)
                await AclAdmin(other, is_configured=True).create([Binding(on("t"), WRITE)])
            return await real(operations)

        one._store.multi = multi
        deny = READ._replace(allowed=False)
        await one.create([Binding(on("t"), deny)])

        answer = {binding.entry for binding in await one.describe(ALL)}
        assert answer == {READ, WRITE, deny}

    run(story())


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, {"t", "tx", "*", "t prefixed"}),
        ({"resource_type": TOPIC, "name": "t", "pattern_type": PATTERN_LITERAL}, {"t"}),
        ({"name": "t"}, {"t", "t prefixed"}),
        ({"name": "t", "pattern_type": PATTERN_PREFIXED}, {"t prefixed"}),
        ({"name": "tx", "pattern_type": PATTERN_MATCH}, {"tx", "*", "t prefixed"}),
        ({"name": "tx", "pattern_type": PATTERN_LITERAL}, {"tx"}),
        ({"resource_type": ResourceType.GROUP}, set()),
        ({"principal": "User:b"}, set()),
        ({"operation": AclOperation.READ}, {"t", "tx", "*", "t prefixed"}),
        ({"operation": AclOperation.WRITE}, set()),
        ({"permission": 2}, set()),
        ({"host": "1.2.3.4"}, set()),
    ],
)
def test_a_filter_matches_what_it_names(wanted, names):
    patterns = [on("t"), on("tx"), on("*"), on("t", prefixed=True)]
    found = {
        pattern.name + (" prefixed" if pattern.prefixed else "")
        for pattern in patterns
        if ALL._replace(**wanted).matches(Binding(pattern, READ))
    }

    assert found == names


@pytest.mark.parametrize(
    "wanted",
    [{"resource_type": 0}, {"pattern_type": 5}, {"operation": 0}, {"permission": 9}],
)
def test_a_filter_with_codes_that_there_are_not_is_refused(wanted):
    with pytest.raises(ApiError) as refused:
        ALL._replace(**wanted).check()
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "pattern", [on("x", kind=ResourceType.CLUSTER), on(""), on("a/b", kind=ResourceType.GROUP)]
)
def test_an_acl_on_what_there_cannot_be_is_refused(pattern):
    with pytest.raises(ApiError) as refused:
        check_new(Binding(pattern, READ))
    assert refused.value.code == ErrorCode.INVALID_REQUEST


# --------------------------------------------------------------------------------------- quotas


def test_quotas_stand_where_kafka_looks_for_them():
    async def story():
        store = await opened()
        clients = ClientAdmin(store)
        entity = {"user": "al ice", "client-id": "a/b"}
        changes = {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
        await clients.alter_quotas(entity, changes, validate_only=False)

        data, _ = await store.get("/config/users/al%20ice/clients/a%2Fb")
        assert data == (
            b'{"version":1,"config":{"producer_byte_rate":"1024","request_percentage":"12.5"}}'
        )
        (notice,) = await store.children("/config/changes")
        assert (await store.get(f"/config/changes/{notice}"))[0] == (
            b'{"version":2,"entity_path":"users/al%20ice/clients/a%2Fb"}'
        )

    run(story())


def test_quotas_are_found_by_filters_strict_and_not():
    async def story():
        clients = ClientAdmin(await opened())
        entities = [
            {"user": "a"},
            {"user": None},
            {"user": "a", "client-id": "c"},
            {"client-id": None},
            {"ip": "1.2.3.4"},
        ]
        for entity in entities:
            key = "connection_creation_rate" if "ip" in entity else "consumer_byte_rate"
            await clients.alter_quotas(entity, {key: 5.0}, validate_only=False)

        async def found(*components, strict):
            described = await clients.describe_quotas(components, strict=strict)
            return [entity for entity, _ in described]

        any_user = Component("user", SPECIFIED, None)
        assert await found(any_user, strict=True) == [{"user": None}, {"user": "a"}]
        assert len(await found(any_user, strict=False)) == 3
        exact = Component("user", EXACT, "a")
        assert await found(exact, strict=True) == [{"user": "a"}]
        assert await found(Component("client-id", DEFAULT, None), strict=True) == [
            {"client-id": None}
        ]
        assert await found(Component("ip", SPECIFIED, None), strict=True) == [{"ip": "1.2.3.4"}]
        assert len(await found(strict=False)) == 5
        assert await found(strict=True) == []

    run(story())


def test_a_quota_is_removed_and_the_others_stay():
    async def story():
        clients = ClientAdmin(await opened())
        user = {"user": "a"}
        both = {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}
        await clients.alter_quotas(user, both, validate_only=False)
        await clients.alter_quotas(user, {"producer_byte_rate": None}, validate_only=True)
        everybody = [Component("user", SPECIFIED, None)]
        assert await clients.describe_quotas(everybody, strict=True) == [(user, both)]

        await clients.alter_quotas(user, {"producer_byte_rate": None}, validate_only=False)
        assert await clients.describe_quotas(everybody, strict=True) == [
            (user, {"consumer_byte_rate": 2.0})
        ]

    run(story())


def test_a_quota_or_credential_that_somebody_edited_does_not_hide_the_others():
    async def story():
        store = await opened()
        clients = ClientAdmin(store)
        options = {
            "producer_byte_rate": "abc",
            "consumer_byte_rate": "5",
            "SCRAM-SHA-256": "salt=?,iterations=many",
        }
        await store.create("/config/users/a", encode_config(options), make_parents=True)
        await clients.alter_quotas({"user": "b"}, {"producer_byte_rate": 1.0}, validate_only=False)

        assert await clients.describe_quotas([], strict=False) == [
            ({"user": "a"}, {"consumer_byte_rate": 5.0}),
            ({"user": "b"}, {"producer_byte_rate": 1.0}),
        ]
        assert await clients.describe_scram("a") == [(1, 0)]
        changes = {"producer_byte_rate": None}
        await clients.alter_quotas({"user": "a"}, changes, validate_only=False)
        data, _ = await store.get("/config/users/a")
        assert b"abc" not in data

    run(story())


@pytest.mark.parametrize(
    ("entity", "changes", "message"),
    [
        ({}, {}, "Invalid empty client quota entity"),
        ({"user": ""}, {}, "Empty user not supported"),
        ({"planet": "x"}, {}, "Unhandled client quota entity type: planet"),
        ({"ip": "1.1.1.1", "user": "a"}, {}, "Invalid quota entity combination"),
        ({"user": "a"}, {"foo": 1.0}, "Invalid configuration key foo"),
        ({"ip": "a"}, {"producer_byte_rate": 1.0}, "Invalid configuration key"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "must be a LONG value"),
        ({"user": "a"}, {"request_percentage": float("nan")}, "Invalid value nan"),
    ],
)
def test_a_quota_that_there_cannot_be_is_refused(entity, changes, message):
    async def story():
        store = await opened()
        with pytest.raises(ApiError, match=message):
            await ClientAdmin(store).alter_quotas(entity, changes, validate_only=False)
        assert await store.exists("/config") is None

    run(story())


@pytest.mark.parametrize(
    "components",
    [
        [Component("planet", SPECIFIED, None)],
        [Component("user", SPECIFIED, None)] * 2,
        [Component("ip", SPECIFIED, None), Component("user", SPECIFIED, None)],
        [Component("user", 7, None)],
        [Component("user", EXACT, None)],
        [Component("user", SPECIFIED, "a")],
    ],
)
def test_a_filter_of_quotas_that_makes_no_sense_is_refused(components):
    async def story():
        with pytest.raises(ApiError):
            await ClientAdmin(await opened()).describe_quotas(components, strict=False)

    run(story())


# ---------------------------------------------------------------------------------------- SCRAM


def test_a_credential_verifies_its_password_and_does_not_hold_it():
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
    text = scram_credential(1, b"salt", salted, 4096)
    parts = dict(part.split("=", 1) for part in text.split(","))

    assert list(parts) == ["salt", "stored_key", "server_key", "iterations"]
    assert base64.b64decode(parts["salt"]) == b"salt"
    assert parts["iterations"] == "4096"
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert base64.b64decode(parts["stored_key"]) == hashlib.sha256(client_key).digest()
    assert base64.b64encode(salted).decode() not in text


def test_credentials_are_listed_by_mechanism_and_deleted_one_by_one():
    async def story():
        clients = ClientAdmin(await opened())
        for mechanism, iterations in ((1, 8192), (2, 4096)):
            made = scram_credential(mechanism, b"s", b"p" * 32, iterations)
            await clients.alter_scram("bob", {mechanism: made})
        await clients.alter_quotas({"user": "al"}, {"producer_byte_rate": 1}, validate_only=False)

        assert await clients.users_with_scram() == ["bob"]
        assert await clients.describe_scram("bob") == [(1, 8192), (2, 4096)]
        await clients.alter_scram("bob", {1: None})
        assert await clients.describe_scram("bob") == [(2, 4096)]
        with pytest.raises(ApiError, match="Attempt to delete a user credential that does not"):
            await clients.alter_scram("bob", {1: None})
        with pytest.raises(ApiError, match="does not exist: al"):
            await clients.describe_scram("al")

    run(story())


@pytest.mark.parametrize(
    ("user", "mechanism", "iterations", "code"),
    [
        ("", 1, 4096, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("a", 1, 4095, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("a", 1, 16385, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("a", 0, 4096, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("a", 3, None, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_a_credential_that_there_cannot_be_is_refused(user, mechanism, iterations, code):
    with pytest.raises(ApiError) as refused:
        check_scram(user, mechanism, iterations)
    assert refused.value.code == code
