"""Where our tools' outputs differ from Kafka 3.9.2's recorded ones, each with the reason."""

from tests.recorded.recording import Difference

_UNKNOWN_BROKERS = "3.9 accepts brokers that do not exist in an assignment; ours refuses them"
_OPTIONAL = "3.9 prints Java's Optional[...] around the name; ours prints the name"
_ONE_LINE = "3.9 prints the whole table in one line; ours prints rows"
_JSON = "ours names the file, the line and the column of what is wrong"
_BLOCKED = (
    "3.9 refuses every change of a broker if it has a stored key that is not defined; ours does not"
)

_UNKNOWN_KEY = "3.9 stores a broker option that is not defined; ours refuses it"
_NO_WAIT = "3.9 waits a minute for a partition that does not exist; ours fails at once"
_SUCCESSOR = "ours says in a second line which option has replaced it"
_ALL_PARTS = ("out", "err", "code")

DIFFERENT: dict[str, Difference] = {
    "topics.41-describe-all": Difference(_UNKNOWN_BROKERS, without=r"Topic: e2\t"),
    "topics.48-describe-urp": Difference(_UNKNOWN_BROKERS, without=r"Topic: e2\t"),
    "topics.35-zookeeper-option": Difference(_SUCCESSOR, without="^--zookeeper was removed: "),
    "topics.43-describe-unknown": Difference(_OPTIONAL, ("out", "err")),
    "topics.69-delete-unknown": Difference(_OPTIONAL, ("out", "err")),
    "topics.73-delete-internal": Difference(_OPTIONAL, ("out", "err")),
    "extra.03-describe-assignment-unknown-only": Difference(_OPTIONAL, ("out", "err")),
    "rack.05-describe-partial-racks": Difference(_OPTIONAL, ("out", "err")),
    "configs.30-broker-unknown-key": Difference(_UNKNOWN_KEY, _ALL_PARTS),
    "configs.36-brokers-describe-all-entities": Difference(_UNKNOWN_KEY, without="foo="),
    "configs.31-broker-bad-value": Difference(_BLOCKED, ("err",)),
    "configs.32-broker-delete": Difference(_BLOCKED, _ALL_PARTS),
    "extra.22-broker-after-unknown-key": Difference(_UNKNOWN_KEY, without="foo=|num.network"),
    "extra.23-broker-delete-unknown-key": Difference(_UNKNOWN_KEY, _ALL_PARTS),
    "extra.01-create-assignment-negative": Difference(_UNKNOWN_BROKERS, _ALL_PARTS),
    "extra.27-delete-internal": Difference(
        "3.9 deletes __consumer_offsets, and with it all committed offsets; ours refuses",
        _ALL_PARTS,
    ),
    "reassign.48-execute-syntax-error": Difference(_JSON, ("out",)),
    "leader.09-json-bad": Difference(_JSON, ("err",)),
    **dict.fromkeys(
        (
            "groups.06-reset-unknown-group",
            "groups.31-reset-dry-run",
            "groups.34-reset-to-latest",
            "groups.36-reset-shift-by-neg",
            "groups.38-reset-to-offset-too-high",
            "groups.39-reset-to-offset-negative",
            "groups.46-reset-topic-partitions",
            "groups.47-reset-all-topics",
            "groups.50-reset-from-file",
            "groups.57-reset-new-group-execute",
            "groups.25-delete-offsets-active",
            "groups.59-delete-offsets",
        ),
        Difference(_ONE_LINE, ("out",)),
    ),
    "urp.02-urp": Difference(_UNKNOWN_BROKERS, without=r"\be2\b"),
    "urp.05-at-min-isr": Difference(_UNKNOWN_BROKERS, without=r"\be2\b"),
    "urp.08-list-while-delete-pending": Difference(_UNKNOWN_BROKERS, without=r"\be2\b"),
    "urp.12-leader-preferred-all": Difference(
        _UNKNOWN_BROKERS, ("code",), without=r"\be2-0|could not be elected"
    ),
    "urp.13-leader-preferred-again": Difference(
        _UNKNOWN_BROKERS, ("code",), without=r"\be2-0|could not be elected"
    ),
    "configs.41-broker-loggers": Difference("the loggers are those of our brokers", ("out",)),
    "misc.12-broker-api-versions": Difference("the versions are those that ours serve", ("out",)),
    "misc.14-features-describe": Difference("ours has transactions of version 2", ("out",)),
    "misc.27-producer-perf-print-metrics": Difference(
        "the counters are those of our client", without=r"^Metric Name|:\{client-id="
    ),
    "misc.29-consumer-perf-detailed": Difference(
        "ours has read all before the first report is due", without=r"^\d{4}-\d\d-\d\d "
    ),
    "reassign.17-urp-during-reassign": Difference(_UNKNOWN_BROKERS, without=r"\be2\b"),
    "groups.58-reset-unknown-partition": Difference(_NO_WAIT, ("out",)),
    "offsets.21-delete-records-errors": Difference(_NO_WAIT, ("out", "err")),
}

_FILES = "reads files; played in test_dump_log.py"

NOT_PLAYED: dict[str, str] = {
    "misc.34-zookeeper-shell-tree": "lists the znodes of the recorded cluster",
    "offsets.01-all": "lists the topics of all other recordings",
    **dict.fromkeys(
        (
            "misc.21-dump-log-print-data",
            "misc.22-dump-log-deep",
            "misc.23-dump-index",
            "misc.24-dump-index-sanity",
        ),
        _FILES,
    ),
}
