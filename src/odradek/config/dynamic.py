"""AlterConfigs and IncrementalAlterConfigs: which changes are allowed, and their result.

Pure: from the stored overrides and the requested change to the overrides to be stored, or an
`ApiError` with Kafka's code and text. Nothing is stored here.

    topic    INVALID_CONFIG   an unknown name, a wrong value, options that contradict each other
    broker   INVALID_REQUEST  an option that is not dynamic, or not here; a wrong value
    either   INVALID_REQUEST  a name twice, or no value

A broker whose stored settings change applies what it can of them (`usable`), because other
brokers and tools write there too. Apache Kafka stores unknown names for a broker, and then its
tools refuse every later change of that broker; here they are refused, but can be deleted.
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
    """The operations of IncrementalAlterConfigs, with their codes."""

    SET = 0
    DELETE = 1
    APPEND = 2  # to a list
    SUBTRACT = 3  # from a list


class OptionAlteration(NamedTuple):
    """One option, the operation on it, and its value."""

    operation: int
    name: str
    value: str | None


# ------------------------------------------------------------------------------------ topics


def check_new_topic(overrides: Mapping[str, str | None], broker: BrokerConfig) -> TopicConfig:
    """The configuration of a topic that is to be created.

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
    alterations: Sequence[OptionAlteration],
    broker: BrokerConfig,
) -> dict[str, str]:
    """The overrides of a topic after IncrementalAlterConfigs.

    Raises:
        ApiError: INVALID_CONFIG or INVALID_REQUEST.
    """
    altered = _altered(stored, alterations, TOPIC_OPTIONS.get)
    _checked_topic(altered, broker, _resource("TOPIC", topic))
    return altered


def replace_topic(
    topic: str, entries: Iterable[tuple[str, str | None]], broker: BrokerConfig
) -> dict[str, str]:
    """The overrides of a topic after AlterConfigs: these entries and no others.

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
    """Whether a resource of type BROKER is this broker (its id), or all of them ("").

    Raises:
        ApiError: INVALID_REQUEST; only another broker can answer.
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
    alterations: Sequence[OptionAlteration], current: BrokerConfig, *, per_broker: bool
) -> dict[str, str]:
    """The dynamic settings, of this broker or of all, after IncrementalAlterConfigs.

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
    """The dynamic settings, of this broker or of all, after AlterConfigs.

    Raises:
        ApiError: INVALID_CONFIG or INVALID_REQUEST.
    """
    replaced = _replaced(entries)
    _check_broker(replaced, current, per_broker=per_broker)
    return replaced


def check_fits(
    default: Mapping[str, str], current: BrokerConfig, others: Mapping[str, Mapping[str, str]]
) -> None:
    """Refuse a change for all brokers that contradicts the settings of one of them.

    The others' `server.properties` are not known here: this broker's is taken in their place, and
    a conflict that existed before is not an error of the change. Apache Kafka lets the one broker
    that gets the request decide; a broker that cannot apply the change logs that and continues
    without it.

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
    """The stored settings that a broker applies, and the names of those that it ignores.

    Ignored are options that are not dynamic, or not at this level, and values that do not parse.
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
    """Refuse a change after which no client could connect and undo it.

    Kafka refuses `max.connections=0` for a listener only, and any port that is a number.
    """
    for name in settings:
        if (base_name(name) or name) == "max.connections" and candidate.values[name] == 0:
            raise unfit("Invalid max.connections 0")
    for point in new_listeners(current, candidate):
        if point.port in _PRIVILEGED_PORTS:
            raise unfit(
                f"listener {point.connection_string}: a port below 1024 is set in "
                "server.properties only, because only the next start shows whether it can be bound"
            )


def new_listeners(current: BrokerConfig, candidate: BrokerConfig) -> list[EndPoint]:
    """The end points of `candidate` that `current` does not have."""
    there = {(point.host, point.port) for point in current.listeners}
    return [point for point in candidate.listeners if (point.host, point.port) not in there]


def unfit(why: str) -> ApiError:
    """The refusal of options that fit neither each other nor the broker, in Kafka's words."""
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        f"Invalid value org.apache.kafka.common.config.ConfigException: {why} "
        "for configuration Invalid dynamic configuration",
    )


def _refusal(settings: Mapping[str, str], *, per_broker: bool) -> str | None:
    """Why these cannot be set while brokers run, in Kafka's words; None if they can."""
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
            if option.name in _ONLY_WITH_LISTENER:  # the passwords of TLS
                return
            why = f"{name} can be set in server.properties only"
        resource = _resource("BROKER", str(current.broker_id) if per_broker else "")
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{resource}{why}")


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

# Thread counts that Kafka allows to be at most doubled or halved by one change.
_RESIZED_BY_HALVES: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


def _check_resized(name: str, current: BrokerConfig, candidate: BrokerConfig) -> None:
    before, after = current.number(name), candidate.number(name)
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
    raise unfit(why)


# ------------------------------------------------------------------------------- alterations


def _altered(
    stored: Mapping[str, str],
    alterations: Sequence[OptionAlteration],
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
    # If nothing is set, the default is changed: it is the value that DescribeConfigs shows.
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
