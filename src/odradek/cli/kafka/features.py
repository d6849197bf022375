"""`kafka-features`: describes and changes feature levels.

Behaviour, flags and texts follow Kafka 3.9's `FeatureCommand`. Clusters in ZooKeeper mode have no
features; those of KRaft do.
"""

import sys
from collections.abc import Sequence
from typing import Final

from odradek.cli.connect import properties_of, with_cluster
from odradek.cli.failures import message_of
from odradek.cli.kafka.support.arguments import CommandLine, Namespace, connection
from odradek.client.admin.security import FeatureUpdate, update_features
from odradek.client.admin.topics import any_broker
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, OdradekError
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

METADATA: Final = "metadata.version"
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3

_DONE: Final = {"upgrade": "upgraded", "downgrade": "downgraded", "disable": "disabled"}

# metadata.version by level; a release name stands for its last level.
_LEVELS: Final = (
    "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0",
    "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1",
    "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2",
    "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    options = command_line().read(arguments)
    updates = [] if options.verb == "describe" else _updates(options)
    properties = properties_of(options.command_config)

    async def work(cluster: Cluster) -> int:
        if options.verb == "describe":
            return await _describe(cluster)
        return await _update(cluster, options.verb, updates, dry_run=options.dry_run)

    servers = options.bootstrap_server or options.bootstrap_controller
    call = "describeFeatures" if options.verb == "describe" else "updateFeatures"
    return with_cluster(servers, properties, work, call=call)


def command_line() -> CommandLine:
    parser = CommandLine("kafka-features", "Describe and change features.")
    connection(parser)
    parser.value("command-config", metavar="file", help="Client properties.")
    parser.verb("describe", "Show supported and finalized levels.")
    for verb, text in (
        ("upgrade", "Raise feature levels."),
        ("downgrade", "Lower feature levels."),
        ("disable", "Disable features: level 0."),
    ):
        sub = parser.verb(verb, text)
        if verb != "disable":
            sub.value("metadata", metavar="release", help="metadata.version, by release.")
        sub.value("feature", metavar="name" if verb == "disable" else "name=level", default=())
        if verb != "upgrade":
            sub.flag("unsafe", help="Even if metadata is lost.")
        sub.flag("dry-run", help="Only judge.")
    return parser


# The levels of metadata.version that the tool of Kafka 3.9 lists; Kafka 4 has later ones.
_OF_3_9: Final = slice(_LEVELS.index("3.3-IV0"), _LEVELS.index("3.9-IV0") + 1)


class _BadFeatureError(OdradekError):
    """The feature or level is invalid."""


def _updates(options: Namespace) -> list[FeatureUpdate]:
    verb: str = options.verb
    kind = UPGRADE
    if verb != "upgrade":
        kind = UNSAFE_DOWNGRADE if options.unsafe else SAFE_DOWNGRADE
    levels: dict[str, int] = {}
    if verb != "disable" and options.metadata is not None:
        levels[METADATA] = _metadata_level(options.metadata)
    for text in options.feature:
        name, equals, level = text.partition("=")
        if verb == "disable":
            level = "0"
        elif not equals:
            raise _BadFeatureError(
                f"Can't parse feature=level string {text}: equals sign not found."
            )
        elif not level.strip().isdecimal():
            raise _BadFeatureError(
                f"Can't parse feature=level string {text}: unable to parse {level} as a short."
            )
        if name.strip() in levels:
            raise _BadFeatureError(f"Feature {name.strip()} was specified more than once.")
        levels[name.strip()] = int(level)
    if not levels:
        raise _BadFeatureError(f"You must specify at least one feature to {verb}")
    return [FeatureUpdate(name, level, kind) for name, level in levels.items()]


def _metadata_level(release: str) -> int:
    matching = [
        number
        for number, name in enumerate(_LEVELS, 1)
        if name == release or name.startswith(f"{release}-")
    ]
    if not matching:
        raise _BadFeatureError(
            f"Unsupported metadata.version {release}. Supported metadata.version are "
            f"{', '.join(_LEVELS[_OF_3_9])}"
        )
    return matching[-1]


def _level(name: str, level: int) -> str:
    if name == METADATA and 1 <= level <= len(_LEVELS):
        return _LEVELS[level - 1]
    return str(level)


async def _describe(cluster: Cluster) -> int:
    connection = await any_broker(cluster)
    request = ApiVersionsRequest(client_software_name="odradek", client_software_version="1")
    answer = await connection.request(request, ApiVersionsResponse)
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    epoch = answer.finalized_features_epoch
    for feature in sorted(answer.supported_features, key=lambda feature: feature.name):
        name = feature.name
        print(
            f"Feature: {name}\tSupportedMinVersion: {_level(name, feature.min_version)}\t"
            f"SupportedMaxVersion: {_level(name, feature.max_version)}\t"
            f"FinalizedVersionLevel: {_level(name, finalized.get(name, 0))}\t"
            f"Epoch: {epoch if epoch >= 0 else '-'}"
        )
    return 0


async def _update(
    cluster: Cluster, verb: str, updates: Sequence[FeatureUpdate], *, dry_run: bool
) -> int:
    try:
        outcomes = await update_features(cluster, updates, validate_only=dry_run)
    except ApiError as error:
        outcomes = {update.name: error for update in updates}
    failed = 0
    for update in sorted(updates):
        error_of = outcomes[update.name]
        what = "" if verb == "disable" else f" to {update.level}"
        if error_of is not None:
            failed += 1
            could = "Can not" if dry_run else "Could not"
            print(f"{could} {verb} {update.name}{what}. {message_of(error_of)}")
        else:
            print(f"{update.name} {'can be' if dry_run else 'was'} {_DONE[verb]}{what}.")
    if failed:
        sys.stdout.flush()
        print(f"{failed} out of {len(updates)} operation(s) failed.", file=sys.stderr)
    return 1 if failed else 0
