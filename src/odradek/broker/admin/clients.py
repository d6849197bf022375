"""Describing and changing quotas and SCRAM credentials of users, clients and addresses.

Both are options of entities in the store (`odradek.coord.layout_config`): `/config/users/U`,
`/config/users/U/clients/C`, `/config/clients/C`, `/config/ips/I`, each with `<default>`. Every
broker enforces the quotas and authenticates by the credentials.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from odradek.broker.cluster.store_update import children, update
from odradek.coord.layout_config import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    ConfigEntity,
    decode_config,
    encode_config,
    encode_config_change,
)
from odradek.coord.store import Create, Store
from odradek.model.errors import ApiError, ErrorCode
from odradek.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, derive

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

# The options that are quotas, and their types.
_CLIENT_QUOTAS: Final = {
    "producer_byte_rate": "LONG",
    "consumer_byte_rate": "LONG",
    "request_percentage": "DOUBLE",
    "controller_mutation_rate": "DOUBLE",
}
_IP_QUOTAS: Final = {"connection_creation_rate": "INT"}
_EPSILON: Final = 1e-6
_DEFAULT_NODE: Final = "<default>"
_KINDS: Final = {USER: "users", CLIENT_ID: "clients", IP: "ips"}

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

# The entity of a quota; a name of None is the default entity.
QuotaEntity = Mapping[str, str | None]
_Options = Callable[[dict[str, str]], dict[str, str]]


class Component(NamedTuple):
    """One part of a filter: EXACT 0 (with a name), DEFAULT 1, or SPECIFIED 2 (any)."""

    entity_type: str
    match_type: int
    name: str | None


EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2


class ClientAdmin:
    """Options of users, clients and addresses in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # ---------------------------------------------------------------------------- quotas

    async def describe_quotas(
        self, components: Sequence[Component], *, strict: bool
    ) -> list[tuple[QuotaEntity, dict[str, float]]]:
        """The quotas of the entities that match a filter.

        Raises:
            ApiError: the filter is invalid.
            StoreError: the store failed.
        """
        _check_components(components)
        wanted = {component.entity_type: component for component in components}
        found = []
        for entity in await self._entities():
            if not _matches(entity, wanted, strict=strict):
                continue
            options = await self._read(_config_entity(entity))
            known = _IP_QUOTAS if IP in entity else _CLIENT_QUOTAS
            quotas = {
                key: rate
                for key, text in options.items()
                if key in known and (rate := stored_rate(text)) is not None
            }
            if quotas:
                found.append((entity, quotas))
        return found

    async def alter_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool
    ) -> None:
        """Set quotas, or (None) remove them.

        Raises:
            ApiError: there can be no such entity or quota.
            StoreError: the store failed.
        """
        _check_entity(entity)
        known = _IP_QUOTAS if IP in entity else _CLIENT_QUOTAS
        texts = {key: _quota_text(key, value, known) for key, value in changes.items()}

        def changed(options: dict[str, str]) -> dict[str, str]:
            merged = options | {key: text for key, text in texts.items() if text is not None}
            return {key: text for key, text in merged.items() if texts.get(key, "") is not None}

        if validate_only:
            return
        await self._update(_config_entity(entity), changed)

    async def _entities(self) -> list[QuotaEntity]:
        """All entities that have a node, those with a user first."""
        entities: list[QuotaEntity] = []
        for user in await children(self._store, "/config/users"):
            entities.append({USER: _name(user)})
            for client in await children(self._store, f"/config/users/{user}/clients"):
                entities.append({USER: _name(user), CLIENT_ID: _name(client)})  # noqa: PERF401
        for client in await children(self._store, "/config/clients"):
            entities.append({CLIENT_ID: _name(client)})  # noqa: PERF401 - not in one list
        for ip in await children(self._store, "/config/ips"):
            entities.append({IP: _name(ip)})  # noqa: PERF401
        return entities

    # ----------------------------------------------------------------------------- SCRAM

    async def describe_scram(self, user: str) -> list[tuple[int, int]]:
        """(mechanism, iterations) of a user's credentials.

        Raises:
            ApiError: RESOURCE_NOT_FOUND, the user has none.
            StoreError: the store failed.
        """
        options = await self._read(_user(user))
        found = [
            (mechanism, _iterations(options[name]))
            for mechanism, name in MECHANISMS.items()
            if name in options
        ]
        if not found:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {user}",
            )
        return found

    async def users_with_scram(self) -> list[str]:
        """The users with credentials, sorted.

        Raises:
            StoreError: the store failed.
        """
        users = []
        for node in await children(self._store, "/config/users"):
            name = _name(node)
            if name is not None:
                options = await self._read(_user(name))
                if any(mechanism in options for mechanism in MECHANISMS.values()):
                    users.append(name)
        return sorted(users)

    async def alter_scram(self, user: str, credentials: Mapping[int, str | None]) -> None:
        """Store credentials of a user by mechanism, or (None) delete them.

        Raises:
            ApiError: RESOURCE_NOT_FOUND, a credential to delete does not exist.
            StoreError: the store failed.
        """

        def changed(options: dict[str, str]) -> dict[str, str]:
            for mechanism, credential in credentials.items():
                name = MECHANISMS[mechanism]
                if credential is not None:
                    options[name] = credential
                elif options.pop(name, None) is None:
                    raise ApiError(
                        ErrorCode.RESOURCE_NOT_FOUND,
                        "Attempt to delete a user credential that does not exist",
                    )
            return options

        await self._update(_user(user), changed)

    # ------------------------------------------------------------------------- the store

    async def _read(self, entity: ConfigEntity) -> dict[str, str]:
        (node,) = await self._store.get_many([entity.path])
        return {} if node is None else decode_config(entity.path, node[0])

    async def _update(self, entity: ConfigEntity, change: _Options) -> None:
        def changed(data: bytes | None) -> bytes | None:
            options = change(decode_config(entity.path, data))
            return data if data is None and not options else encode_config(options)

        notice = Create(
            f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}",
            encode_config_change(entity),
            sequential=True,
        )
        await update(self._store, entity.path, changed, notice)


def stored_rate(text: str) -> float | None:
    """A quota as it is stored; None: it is not a number, and brokers ignore it."""
    try:
        return float(text)
    except ValueError:
        return None


def scram_credential(mechanism: int, salt: bytes, salted_password: bytes, iterations: int) -> str:
    """A credential as it is stored: the password cannot be derived from it (RFC 5802)."""
    return derive(MECHANISMS[mechanism], salt, salted_password, iterations).text()


def check_scram(user: str, mechanism: int, iterations: int | None) -> None:
    """Refuse an invalid credential; `iterations` is None if it is to be deleted.

    Raises:
        ApiError: the reason.
    """
    if not user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in MECHANISMS:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if iterations is not None and iterations < ITERATIONS_MIN:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations is not None and iterations > ITERATIONS_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def _iterations(credential: str) -> int:
    """The iterations of a stored credential; 0 if somebody has stored something else."""
    for part in credential.split(","):
        name, _, value = part.partition("=")
        if name == "iterations" and value.isdecimal():
            return int(value)
    return 0


def _name(node: str) -> str | None:
    return None if node == _DEFAULT_NODE else unquote(node)


def _user(name: str) -> ConfigEntity:
    return ConfigEntity((("users", name),))


def _config_entity(entity: QuotaEntity) -> ConfigEntity:
    return ConfigEntity(tuple((_KINDS[kind], entity[kind]) for kind in _KINDS if kind in entity))


def _check_components(components: Sequence[Component]) -> None:
    kinds = [component.entity_type for component in components]
    for kind in kinds:
        if kind not in _KINDS:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported"
            )
        if kinds.count(kind) > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Duplicate {kind} filter component entity type"
            )
    if IP in kinds and len(kinds) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used "
            "with user or clientId filter component.",
        )
    for component in components:
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unexpected match type: {component.match_type}"
            )
        if (component.match_type == EXACT) != (component.name is not None):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Request specifies a name for another match than EXACT"
            )


def _matches(entity: QuotaEntity, wanted: Mapping[str, Component], *, strict: bool) -> bool:
    if strict and entity.keys() != wanted.keys():
        return False
    for kind, component in wanted.items():
        if kind not in entity:
            return False
        if component.match_type == EXACT and entity[kind] != component.name:
            return False
        if component.match_type == DEFAULT and entity[kind] is not None:
            return False
    return True


def _check_entity(entity: QuotaEntity) -> None:
    if not entity:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in _KINDS:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"Unhandled client quota entity type: {kind}"
            )
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    if IP in entity and len(entity) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "Invalid quota entity combination, IP entity should not be "
            "combined with User or ClientId",
        )  # fmt: skip


def _quota_text(key: str, value: float | None, known: Mapping[str, str]) -> str | None:
    if key not in known:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if value is None:
        return None
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid value {value} for quota {key}")
    if known[key] == "DOUBLE":
        return str(float(value))
    whole = int(value + _EPSILON)
    bits = 31 if known[key] == "INT" else 63
    if abs(whole - value) > _EPSILON or not -(1 << bits) <= whole < 1 << bits:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Configuration {key} must be a {known[key]} value"
        )
    return str(whole)
