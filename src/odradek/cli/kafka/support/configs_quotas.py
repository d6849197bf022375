"""The part of `kafka-configs` about users, clients and addresses: quotas, SCRAM credentials.

Follows Kafka 3.9's `ConfigCommand`. An entity is a list of types (`users`, `clients`, `ips`) with a
list of names; the name "" is the default entity.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.cli.failures import (
    IllegalArgumentError,
    InvalidConfigurationError,
    java_text,
    message_of,
)
from odradek.cli.kafka.support.java import double, hash_order, string_hash
from odradek.client.admin.security import (
    DEFAULT,
    EXACT,
    SCRAM_ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    SPECIFIED,
    QuotaEntity,
    QuotaFilter,
    ScramCredential,
    alter_client_quotas,
    alter_scram,
    describe_client_quotas,
    describe_scram,
    scram_credential,
)
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, ErrorCode

_ENTITY_TYPES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
_PRINTED: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_CLIENT_QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
_IP_QUOTAS: Final = ("connection_creation_rate",)


# ------------------------------------------------------------------------------------ describe


async def describe_clients(cluster: Cluster, types: Sequence[str], names: Sequence[str]) -> None:
    """Print quotas of users and clients, and SCRAM credentials of users."""
    await _print_quotas(cluster, types, names)
    if "clients" not in types and "" not in names:
        for user, credentials in (await describe_scram(cluster, names)).items():
            if isinstance(credentials, ApiError):
                _print_scram_error(user, credentials, asked=bool(names))
                continue
            text = ", ".join(f"{name}=iterations={iterations}" for name, iterations in credentials)
            print(f"SCRAM credential configs for user-principal '{user}' are {text}")


def _print_scram_error(user: str, error: ApiError, *, asked: bool) -> None:
    if asked and java_text(error).startswith("org.apache.kafka.common.errors.ResourceNotFound"):
        return  # a user without credentials is not an error
    name = java_text(error).partition(":")[0].rpartition(".")[2]
    print(
        f"Error retrieving SCRAM credential configs for user-principal '{user}': "
        f"{name}: {message_of(error)}"
    )


async def describe_ips(cluster: Cluster, names: Sequence[str]) -> None:
    await _print_quotas(cluster, ["ips"], names)


async def _print_quotas(cluster: Cluster, types: Sequence[str], names: Sequence[str]) -> None:
    quotas = dict(await _quotas(cluster, types, names))
    for entity in hash_order(quotas, _entity_hash, expected=len(quotas)):
        values = quotas[entity]
        whose = ", ".join(
            f"the default {printed}" if name is None else f"{printed} '{name}'"
            for kind, printed in _PRINTED.items()
            for entity_type, name in entity
            if entity_type == kind
        )
        by_key = dict(values)
        keys = hash_order(by_key, string_hash, expected=len(by_key))
        shown = ", ".join(f"{key}={double(by_key[key])}" for key in keys)
        print(f"Quota configs for {whose} are {shown}")


def _entity_hash(entity: QuotaEntity) -> int:
    """Java's `ClientQuotaEntity.hashCode`, for the order of a `HashMap`."""
    pairs = (
        string_hash(kind) ^ (0 if name is None else string_hash(name)) for kind, name in entity
    )
    return (31 + sum(pairs)) & 0xFFFFFFFF


async def _quotas(
    cluster: Cluster, types: Sequence[str], names: Sequence[str]
) -> list[tuple[QuotaEntity, list[tuple[str, float]]]]:
    if len(names) > len(types):
        raise IllegalArgumentError("More entity names specified than entity types")
    filters = []
    for at, kind in enumerate(types):
        entity_type = _ENTITY_TYPES[kind]
        if at >= len(names):
            filters.append(QuotaFilter(entity_type, SPECIFIED))
        elif names[at]:
            filters.append(QuotaFilter(entity_type, EXACT, names[at]))
        else:
            filters.append(QuotaFilter(entity_type, DEFAULT))
    return await describe_client_quotas(cluster, filters, strict=True)


# --------------------------------------------------------------------------------------- alter


async def alter_clients(
    cluster: Cluster,
    types: Sequence[str],
    names: Sequence[str],
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    """Change quotas of a user, a client or both; or SCRAM credentials of a user."""
    _check_client_keys(types, names, added, deleted)
    if any(key in _CLIENT_QUOTAS for key in (*added, *deleted)):
        await _alter_quotas(cluster, types, names, added, deleted)
        return
    upsertions = [
        credential_of(mechanism, value, printed=mechanism) for mechanism, value in added.items()
    ]
    await alter_scram(cluster, names[0], upsertions=upsertions, deletions=deleted)


async def alter_ips(
    cluster: Cluster, names: Sequence[str], added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Change quotas of an address."""
    unknown = [key for key in (*added, *deleted) if key not in _IP_QUOTAS]
    if unknown:
        raise IllegalArgumentError(
            "Only connection quota configs can be added for 'ips' using --bootstrap-server. "
            f"Unexpected config names: {','.join(unknown)}"
        )
    await _alter_quotas(cluster, ["ips"], names, added, deleted)


def _check_client_keys(
    types: Sequence[str], names: Sequence[str], added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    only_quotas = types[0] == "clients" or len(types) == 2
    known = _CLIENT_QUOTAS if only_quotas else (*_CLIENT_QUOTAS, *SCRAM_MECHANISMS)
    whom = "clients" if only_quotas else "users"
    what = "quota" if only_quotas else "quota and SCRAM credential"
    for keys, verb, collection in (
        (list(added), "added", "Set"),
        (deleted, "deleted", "ArrayBuffer"),
    ):
        unknown = [key for key in keys if key not in known]
        if unknown:
            raise IllegalArgumentError(
                f"Only {what} configs can be {verb} for '{whom}' using --bootstrap-server. "
                f"Unexpected config names: {collection}({', '.join(unknown)})"
            )
    scram = [key for key in (*added, *deleted) if key in SCRAM_MECHANISMS]
    if scram and "" in names:
        raise IllegalArgumentError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
            "Credentials using --bootstrap-server."
        )
    if scram and len(scram) < len(added) + len(deleted):
        raise IllegalArgumentError(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' "
            "using --bootstrap-server."
        )


async def _alter_quotas(
    cluster: Cluster,
    types: Sequence[str],
    names: Sequence[str],
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    present = {key for _, values in await _quotas(cluster, types, names) for key, _ in values}
    invalid = [key for key in deleted if key not in present]
    if invalid:
        raise InvalidConfigurationError(f"Invalid config(s): {','.join(invalid)}")
    changes: dict[str, float | None] = {key: _number(key, text) for key, text in added.items()}
    changes |= dict.fromkeys(deleted)
    entity = tuple(
        (_ENTITY_TYPES[kind], name or None) for kind, name in zip(types, names, strict=False)
    )
    await alter_client_quotas(cluster, entity, changes)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise IllegalArgumentError(
            f"Cannot parse quota configuration value for {key}: {text}"
        ) from None


def credential_of(mechanism: str, text: str, *, printed: str) -> ScramCredential:
    """`iterations=8192,password=secret`, or `password=secret` alone.

    Raises:
        IllegalArgumentError: it is invalid, or too weak; `printed` is the mechanism's name.
        ApiError: UNACCEPTABLE_CREDENTIAL, the password is empty.
    """
    head, found, password = text.partition("password=")
    number = head.removeprefix("iterations=").removesuffix(",")
    sound = head == "" or (head.startswith("iterations=") and head.endswith(","))
    if not found or not sound or (number and not number.lstrip("-").isdecimal()):
        name = mechanism.replace("-", "_")
        raise IllegalArgumentError(f"Invalid credential property {name}={text}")
    if not password:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Password must not be empty")
    iterations = int(number) if number and number != "-1" else SCRAM_ITERATIONS_MIN
    if iterations < SCRAM_ITERATIONS_MIN:
        raise IllegalArgumentError(
            f"Iterations {iterations} is less than the minimum {SCRAM_ITERATIONS_MIN} required "
            f"for {printed}"
        )
    return scram_credential(mechanism, password, iterations)
