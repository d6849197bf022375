"""AlterConfigs: what topics and running brokers may be told, and what comes of it.

Pure: from what is stored and what is asked for to what is to be stored, or an `ApiError`
with Kafka's code and words. Nothing is stored here.

    topic    INVALID_CONFIG   an unknown name, a wrong value, options that do not go together
    broker   INVALID_REQUEST  an option that is not dynamic, or not here; a wrong value
    either   INVALID_REQUEST  a name twice, or nothing to set it to

A broker that sees its own settings change takes them as they stand (`usable`), for others
write there too. Apache Kafka stores unknown names for a broker, and then its tools refuse
every later change of that broker; here they are refused, but can still be deleted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.config.broker import BROKER_OPTIONS, BrokerConfig, base_name, find
from odradek.config.option import (
    PER_BROKER,
    ConfigConflictError,
    InvalidConfigError,
    Option,
    Type,
)
from odradek.config.topic import TOPIC_OPTIONS, TopicConfig, check_names, check_together
from odradek.model.cluster import EndPoint
from odradek.model.errors import ApiError, ErrorCode


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to one option."""

    SET = 0
    DELETE = 1
    APPEND = 2  # to a list
    SUBTRACT = 3  # from a list


class Alteration(NamedTuple):
    """One option, and what to do to it."""

    operation: int
    name: str
    value: str | None


# ------------------------------------------------------------------------------------ topics


def check_new_topic(overrides: Mapping[str, str | None], broker: BrokerConfig) -> TopicConfig:
    """The configuration that a topic about to be created will have.

    Raises:
        ApiError: INVALID_CONFIG.
    """
    unset = [name for name, value in overrides.items() if value is None]
    if unset:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(unset)}",
        )
    return _checked_topic({k: v for k, v in overrides.items() if v is not None}, broker, "")


def alter_topic(
    topic: str,
    stored: Mapping[str, str],
    alterations: Sequence[Alteration],
    broker: BrokerConfig,
) -> dict[str, str]:
    """What a topic has set after IncrementalAlterConfigs.

    Raises:
        ApiError: INVALID_CONFIG or INVALID_REQUEST.
    """
    altered = _altered(stored, alterations, TOPIC_OPTIONS.get)
    _checked_topic(altered, broker, _resource("TOPIC", topic))
    return altered


def replace_topic(
    topic: str, entries: Iterable[tuple[str, str | None]], broker: BrokerConfig
) -> dict[str, str]:
    """What a topic has set after AlterConfigs: these entries and nothing else.

    Raises:
        ApiError: INVALID_CONFIG or INVALID_REQUEST.
    """
    replaced = _replaced(entries)
    _checked_topic(replaced, broker, _resource("TOPIC", topic))
    return replaced


def _checked_topic(overrides: Mapping[str, str], broker: BrokerConfig, where: str) -> TopicConfig:
    try:
        check_names(overrides)
        try:
            config = broker.topic(overrides)
        except InvalidConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{where}{error}") from None
        check_together(config)
    except ConfigConflictError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    for name, message in _NOT_BUILT.items():
        if config.values[name]:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{where}{message}")
    return config


_DISABLING_TIERS = (
    "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under "
    "Zookeeper's mode."
)
_NOT_BUILT: Final[Mapping[str, str]] = {
    "remote.storage.enable": "Tiered Storage functionality is disabled in the broker. Topic "
    "cannot be configured with remote log storage.",
    "remote.log.copy.disable": _DISABLING_TIERS,
    "remote.log.delete.on.disable": _DISABLING_TIERS,
}


# ----------------------------------------------------------------------------------- brokers


def is_per_broker(resource: str, broker: BrokerConfig) -> bool:
    """Whether a resource of type BROKER is this broker (its id), or all of them (nothing).

    Raises:
        ApiError: INVALID_REQUEST, for another broker has to be asked.
    """
    if not resource:
        return False
    try:
        asked = int(resource)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {resource}"
        ) from None
    if asked != broker.broker_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.broker_id} or empty string, "
            f"but received {resource}",
        )
    return True


def alter_broker(
    alterations: Sequence[Alteration], current: BrokerConfig, *, per_broker: bool
) -> dict[str, str]:
    """What is set dynamically, for this broker or for all, after IncrementalAlterConfigs.

    Raises:
        ApiError: INVALID_CONFIG or INVALID_REQUEST.
    """
    stored = current.dynamic if per_broker else current.dynamic_default
    altered = _altered(stored, alterations, find)
    _check_broker(altered, current, per_broker=per_broker)
    return altered


def replace_broker(
    entries: Iterable[tuple[str, str | None]], current: BrokerConfig, *, per_broker: bool
) -> dict[str, str]:
    """What is set dynamically, for this broker or for all, after AlterConfigs.

    Raises:
        ApiError: INVALID_CONFIG or INVALID_REQUEST.
    """
    replaced = _replaced(entries)
    _check_broker(replaced, current, per_broker=per_broker)
    return replaced


def check_fits(
    default: Mapping[str, str], current: BrokerConfig, others: Mapping[str, Mapping[str, str]]
) -> None:
    """Refuse for all what some broker, by its id, could not take beside what is set for it alone.

    What stands in the others' `server.properties` is not known here: this broker's is taken for
    theirs, and a conflict that is there already is not held against the change. Apache Kafka asks
    one broker, whichever the client chose; one that cannot take the change then goes on without
    it, and says so in its log.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    for broker, stored in sorted(others.items()):
        own, _ = usable(stored, per_broker=True)
        try:
            before = current.with_dynamic(dynamic=own, dynamic_default=current.dynamic_default)
        except (InvalidConfigError, ConfigConflictError):
            continue
        try:
            after = current.with_dynamic(dynamic=own, dynamic_default=default)
        except (InvalidConfigError, ConfigConflictError) as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker}: {error}") from None
        for name in _RESIZED_BY_HALVES:
            _check_resized(name, before, after)


def usable(settings: Mapping[str, str], *, per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """What of the stored settings a broker takes, and the names of those it leaves.

    It leaves what is not dynamic, what is not dynamic at this level, and what does not parse.
    """
    taken: dict[str, str] = {}
    for name, text in settings.items():
        option = find(name)
        if option is not None:
            if _refusal({name: text}, per_broker=per_broker) is not None:
                continue
            try:
                option.parse(text)
            except InvalidConfigError:
                continue
        taken[name] = text
    return taken, sorted(settings.keys() - taken.keys())


def _check_broker(settings: Mapping[str, str], current: BrokerConfig, *, per_broker: bool) -> None:
    stored = current.dynamic if per_broker else current.dynamic_default
    refusal = _refusal(settings, per_broker=per_broker)
    if refusal is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, refusal)
    for name in settings.keys() - stored.keys():
        _check_can_be_set(name, current, per_broker=per_broker)
    try:
        candidate = current.with_dynamic(
            dynamic=settings if per_broker else current.dynamic,
            dynamic_default=current.dynamic_default if per_broker else settings,
        )
    except (InvalidConfigError, ConfigConflictError) as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    for name in _RESIZED_BY_HALVES:
        _check_resized(name, current, candidate)
    _check_reachable(settings, current, candidate)


_PRIVILEGED_PORTS: Final = range(1, 1024)


def _check_reachable(
    settings: Mapping[str, str], current: BrokerConfig, candidate: BrokerConfig
) -> None:
    """Refuse what would let nobody in any more, who could take it back.

    Kafka refuses `max.connections=0` for a listener only, and any port that is a number.
    """
    for name in settings:
        if (base_name(name) or name) == "max.connections" and candidate.values[name] == 0:
            raise _unfit("Invalid max.connections 0")
    for point in new_listeners(current, candidate):
        if point.port in _PRIVILEGED_PORTS:
            raise _unfit(
                f"listener {point.connection_string}: a port below 1024 is set in "
                "server.properties only, for whether it can be had shows at the next start"
            )


def new_listeners(current: BrokerConfig, candidate: BrokerConfig) -> list[EndPoint]:
    """Where the one would listen and the other does not."""
    there = {(point.host, point.port) for point in current.listeners}
    return [point for point in candidate.listeners if (point.host, point.port) not in there]


def _unfit(why: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        f"Invalid value org.apache.kafka.common.config.ConfigException: {why} "
        "for configuration Invalid dynamic configuration",
    )


def _refusal(settings: Mapping[str, str], *, per_broker: bool) -> str | None:
    """Why these cannot be set while brokers run, in Kafka's words."""
    fixed = [
        name for name in settings if name in BROKER_OPTIONS and not BROKER_OPTIONS[name].is_dynamic
    ]
    if fixed:
        return f"Cannot update these configs dynamically: {_set(fixed)}"
    of_a_listener = [name for name in settings if name in _ONLY_WITH_LISTENER]
    if of_a_listener:
        return (
            "These security configs can be dynamically updated only per-listener using the "
            f"listener prefix: {_set(of_a_listener)}"
        )
    of_a_broker = [name for name in settings if _is_per_broker_only(name)]
    if of_a_broker and not per_broker:
        return (
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"{_set(of_a_broker)}"
        )
    return None


def _is_per_broker_only(name: str) -> bool:
    base = base_name(name)
    if base is not None:
        return base not in (
            "max.connections",
            "max.connection.creation.rate",
            "num.network.threads",
        )
    option = BROKER_OPTIONS.get(name)
    return option is not None and option.scope is PER_BROKER


def _check_can_be_set(name: str, current: BrokerConfig, *, per_broker: bool) -> None:
    option = find(name)
    if option is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {name}")
    if option.type is Type.PASSWORD:
        why = "Password encoder secret not configured"
        if current.values["password.encoder.secret"] is not None:
            why = f"{name} can be set in server.properties only"
        resource = _resource("BROKER", str(current.broker_id) if per_broker else "")
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{resource}{why}")


_CLUSTER_WIDE_OF_LISTENERS: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
_ONLY_WITH_LISTENER: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

# What Kafka lets grow to the double, or shrink to the half, at a time.
_RESIZED_BY_HALVES: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


def _check_resized(name: str, current: BrokerConfig, candidate: BrokerConfig) -> None:
    before, after = current.values[name], candidate.values[name]
    assert isinstance(before, int)
    assert isinstance(after, int)
    if before // 2 <= after <= before * 2:
        return
    if name == "log.cleaner.threads":
        direction = (
            "increased to more than double" if after > before else "reduced to less than half"
        )
        why = f"Log cleaner threads cannot be {direction} the current value {before}"
    else:
        limit = "not be greater than double" if after > before else "be at least half"
        why = (
            f"Dynamic thread count update validation failed for {name}={after}, "
            f"value should {limit} the current value {before}"
        )
    raise _unfit(why)


# ------------------------------------------------------------------------------- alterations


def _altered(
    stored: Mapping[str, str],
    alterations: Sequence[Alteration],
    find_option: Callable[[str], Option | None],
) -> dict[str, str]:
    if len({alteration.name for alteration in alterations}) < len(alterations):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    _check_given(
        (alteration.name, alteration.value)
        for alteration in alterations
        if alteration.operation != Operation.DELETE
    )
    altered = dict(stored)
    for operation, name, value in alterations:
        match operation:
            case Operation.DELETE:
                altered.pop(name, None)
            case Operation.SET:
                altered[name] = str(value)
            case Operation.APPEND | Operation.SUBTRACT:
                altered[name] = _edited_list(
                    Operation(operation), name, str(value), altered.get(name), find_option(name)
                )
            case _:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation} for {name}"
                )
    return altered


def _edited_list(
    operation: Operation, name: str, value: str, stored: str | None, option: Option | None
) -> str:
    if option is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
    if option.type is not Type.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Config value {operation.name.lower()} is not allowed for config key: {name}",
        )
    # The default's words where nothing is set, for that is what the user saw.
    text = stored if stored is not None else option.render(option.default) or ""
    words = _words(text)
    given = _words(value)
    if operation is Operation.APPEND:
        words += [word for word in given if word not in words]
    else:
        words = [word for word in words if word not in given]
    return ",".join(words)


def _words(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]


def _replaced(entries: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    listed = list(entries)
    _check_given(listed)
    return {name: str(value) for name, value in listed}


def _check_given(entries: Iterable[tuple[str, str | None]]) -> None:
    unset = [name for name, value in entries if value is None]
    if unset:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(unset)}"
        )


def _resource(kind: str, name: str) -> str:
    return f"Invalid config value for resource ConfigResource(type={kind}, name='{name}'): "


def _set(names: Iterable[str]) -> str:
    return f"Set({', '.join(sorted(names))})"
