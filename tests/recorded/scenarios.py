"""The scenarios: the recordings that are played on one cluster, and the steps between them.

A step that is not a recording is a command of ours (without --bootstrap-server), or one of

    topic-id TOPIC ID       from now on the topic's id replaces the recorded one
    stop N, start N ...     one broker; also kill, freeze
    reassign PLAN           start a reassignment
    reassigned              the same as settle
    fill TOPIC COUNT        produce records
    settle                  wait until every replica is in sync again
    creatable TOPIC         wait until the controller has deleted a topic of this name
    described ... TEXT      wait until kafka-configs --describe with these words shows the text
    undescribed ... TEXT    wait until it does not
    join GROUP TOPIC ...    start a member of a group, and wait until it has no lag
    leave GROUP             stop its members
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_T3 = "--config min.insync.replicas=2 --config retention.ms=3600000"
_U1 = "--config min.insync.replicas=3"
_STATIC = "--consumer-property client.id=cid --consumer-property group.instance.id=inst-1"
_BOB = "--allow-principal User:bob"
_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


class Scenario(NamedTuple):
    """The options of a cluster, and its steps."""

    name: str
    steps: list[str]
    racks: tuple[str, ...] = ()
    options: Mapping[str, object] = MappingProxyType({})

    def __str__(self) -> str:
        return self.name


def _all(prefix: str, names: str) -> list[str]:
    return [f"{prefix}.{name}" for name in names.split()]


SCENARIOS = (
    Scenario(
        "topics",
        [
            *_all(
                "topics",
                "02-describe-empty 03-create-defaults 04-create-p3-rf2 05-create-with-configs "
                "06-create-exists 07-create-if-not-exists",
            ),
            "topics --create --topic a.b",
            *_all(
                "topics",
                "09-create-underscore-collision 10-create-bad-name 13-create-name-empty "
                "14-create-rf-too-large 15-create-rf-0 22-create-config-no-value",
            ),
            "topics --create --topic e2 --replica-assignment 3:1,1:2",
            *_all(
                "topics",
                "24-create-assignment-dup 25-create-assignment-uneven "
                "27-create-assignment-nonnumeric 28-create-assignment-with-partitions "
                "29-create-assignment-empty-part 30-create-assignment-negative",
            ),
            "topics --create --topic t4 --replica-assignment 1:2,2:3,4:1",
            *_all(
                "topics",
                "32-create-and-delete 33-no-bootstrap 34-unknown-option 35-zookeeper-option "
                "36-list 37-list-pattern 38-list-exclude-internal 39-describe-one "
                "40-describe-assignment 41-describe-all 42-describe-pattern 43-describe-unknown",
            ),
            "topic-id t3 HSQD2sMlQ_SPm5CgSduFow",
            *_all(
                "topics",
                "46-describe-topic-id 47-describe-topic-id-unknown 48-describe-urp "
                "50-describe-under-min-isr 52-alter-partitions-grow 53-describe-after-grow "
                "54-alter-partitions-shrink 55-alter-partitions-same 57-alter-unknown-if-exists "
                "58-alter-assignment 59-describe-after-assignment "
                "62-alter-assignment-unknown-broker 63-alter-assignment-dup 65-alter-config "
                "67-alter-nothing 68-delete 69-delete-unknown 72-delete-pattern "
                "73-delete-internal 75-bootstrap-bad-url 76-bootstrap-unresolvable",
            ),
        ],
    ),
    Scenario(
        "configs",
        [
            "topics --create --topic cf",
            *_all(
                "configs",
                "02-topic-add 07-topic-delete-not-set 08-topic-delete-unknown "
                "09-topic-add-unknown 10-topic-add-bad-value 11-topic-add-bad-enum "
                "13-topic-add-empty",
            ),
            "configs --alter --topic cf --delete-config retention.ms",
            *_all(
                "configs",
                "18-topic-shortcut 19-topic-add-and-delete 21-broker-describe 23-broker-add "
                "24-broker-describe-after 25-broker-default-add 26-broker-default-describe "
                "27-broker-describe-both 28-broker-readonly 29-broker-readonly-2 "
                "30-broker-unknown-key 36-brokers-describe-all-entities 31-broker-bad-value "
                "32-broker-delete 34-broker-unknown-id 35-broker-id-abc "
                "37-broker-per-broker-only-default 40-broker-num-io-threads-del 41-broker-loggers "
                "43-quota-user-add 44-quota-client-add",
            ),
            "configs --alter --user alice --client app1 --add-config producer_byte_rate=500",
            *_all(
                "configs",
                "47-quota-ip-add 49-quota-user-describe 50-quota-user-client-describe "
                "52-quota-ip-describe 53-quota-bad-key 56-scram-add 57-scram-describe "
                "58-scram-delete 59-scram-delete-missing 61-groups-entity 62-bad-entity-type "
                "63-alter-no-entity-name 64-alter-nothing 65-no-entity-type "
                "66-zookeeper-broker-describe 67-zookeeper-topics",
            ),
        ],
    ),
    Scenario(
        "broker options",
        [
            *_all(
                "extra",
                "04-broker-add 05-broker-default-add 08-broker-bad-value-0 09-broker-type-error "
                "12-broker-num-io-threads-10 13-broker-delete-num-io-threads 14-broker-delete "
                "15-broker-default-delete 16-broker-delete-not-set",
            ),
            "configs --alter --broker 1 --add-config num.network.threads=2",
            "configs --alter --broker 1 --add-config num.network.threads=1",
            *_all("extra", "17-broker-shortcut 18-broker-defaults-shortcut"),
            "configs --alter --broker 1 --add-config log.retention.ms=1000000",
            *_all("extra", "22-broker-after-unknown-key 23-broker-delete-unknown-key"),
        ],
        options={"num.network.threads": 3, "log.retention.hours": 168},
    ),
    Scenario(
        "internal topics",
        [
            "extra.01-create-assignment-negative",
            "topics --create --topic x1 --replica-assignment 1:2",
            "topics --create --topic x3",
            "extra.03-describe-assignment-unknown-only",
            "consumer-groups --reset-offsets --group y --topic x3 --to-earliest --execute",
            "consumer-groups --delete --group y",
            *_all(
                "extra",
                "24-list-with-internal 25-list-exclude-internal 26-describe-internal "
                "31-describe-group-lag 33-describe-group-topic-deleted 27-delete-internal "
                "29-create-internal-name 30-create-internal-like",
            ),
        ],
    ),
    Scenario(
        "reassignments",
        [
            "topics --create --topic r1 --replica-assignment 1:2,2:3,3:1",
            "topics --create --topic r2 --replica-assignment 1:2",
            *_all(
                "reassign",
                "02-generate-two-brokers 04-generate-unknown-broker 05-generate-dup-broker "
                "07-generate-dup-topic 09-list-none 24-cancel-none",
            ),
            *_all(
                "reassign",
                "35-execute-increase-rf",
            ),
            "settle",
            *_all(
                "reassign",
                "37-describe-increase-rf 38-execute-unknown-topic 41-execute-dup-replicas "
                "42-execute-empty-replicas 43-execute-negative-replica 44-execute-dup-partition "
                "45-execute-bad-version 48-execute-syntax-error 49-execute-missing-file "
                "50-no-action 51-two-actions 53-verify-with-throttle 55-verify-unknown-topic "
                "60-execute-log-dirs-length 63-describe-reorder",
            ),
        ],
    ),
    Scenario(
        "a reassignment that does not end, for its target is frozen",
        [
            "topics --create --topic r1 --replica-assignment 1:2,2:3,3:1",
            "freeze 4",
            "reassign all4",
            *_all(
                "reassign",
                "13-list-in-progress 14-verify-in-progress 18-execute-while-in-progress",
            ),
        ],
        options={"zookeeper.session.timeout.ms": 120_000},
    ),
    Scenario(
        "a throttled reassignment, cancelled",
        [
            "topics --create --topic r1 --replica-assignment 1:2,2:3,3:1",
            "fill r1 6000",
            "reassign all4 --throttle 1000",
            *_all(
                "reassign",
                "15-configs-brokers-throttled 16-configs-topic-throttled 17-urp-during-reassign "
                "18-execute-while-in-progress 19-execute-additional 22-cancel "
                "26-configs-brokers-after-cancel 27-configs-topic-after-cancel",
            ),
        ],
    ),
    Scenario(
        "reassignments that end",
        [
            "topics --create --topic r1 --replica-assignment 2:1,3:2,1:3",
            *_all(
                "reassign",
                "23-describe-after-cancel 25-verify-after-cancel 28-execute-throttled-2",
            ),
            "reassigned",
            *_all("reassign", "30-verify-complete 31-verify-complete-again"),
            "reassign proposed --throttle 50000000",
            "reassigned",
            "reassign.34-verify-proposed",
        ],
    ),
    Scenario(
        "racks",
        [
            "topics --create --topic k1 --replica-assignment 1:3,3:2,2:4,4:1,1:4,3:1,2:3,4:2",
            *_all(
                "rack",
                "01-describe-rack-aware 02-generate-rack-aware 03-generate-disable-rack "
                "05-describe-partial-racks 07-generate-partial-racks-disable",
            ),
        ],
        racks=("a", "a", "b", "b"),
    ),
    Scenario(
        "leaders",
        [
            "topics --create --topic l1 --replica-assignment 1:2,3:4,2:1",
            "topics --create --topic l2 --replica-assignment 3:4",
            "leader.01-preferred-not-needed",
            "stop 3",
            "start 3",
            "settle",
            *_all("leader", "02-describe-before 03-preferred-one 04-describe-after"),
            *_all(
                "leader",
                "05-preferred-unknown-partition 09-json-bad 10-json-missing "
                "11-unclean-not-needed 13-no-scope 14-topic-no-partition 15-two-scopes",
            ),
            "leader-election --election-type preferred --topic l2 --partition 0",
            "stop 4",
            "stop 3",
            "start 4",
            *_all("leader", "16-describe-offline 18-unclean-done 19-describe-after-unclean"),
            "start 3",
            "settle",
            "leader.20-describe-after-return",
        ],
    ),
    Scenario("no authorizer", ["acl_off.02-add-no-authorizer"]),
    Scenario(
        "acls",
        [
            *_all("acls", "01-list-none 02-add 04-add-again 06-add-producer"),
            f"acls --add {_BOB} --producer --topic m1 --idempotent --transactional-id tx",
            f"acls --add {_BOB} --consumer --topic m1 --group grp",
            "acls --add --deny-principal User:eve --deny-host 198.51.100.3 --topic *",
            *_all("acls", "09-add-prefixed 10-add-cluster"),
            # Read was there before; Describe of the consumer is the producer's.
            *_all("acls", "11-list-all 12-list-principal 13-list-match 14-remove"),
            *_all(
                "acls",
                "15-remove-confirm-no 18-bad-principal 19-bad-operation 20-op-not-for-resource "
                "21-no-resource 22-no-principal 23-no-action",
            ),
            "acls --remove --topic m1 --force",
            "acls.24-list-after",
        ],
        options={"authorizer.class.name": _AUTHORIZER, "super.users": "User:ANONYMOUS"},
    ),
    Scenario(
        "groups",
        [
            "topics --create --topic g1 --partitions 3",
            "fill g1:0 300",
            *_all("groups", "01-list-none 05-delete-unknown 06-reset-unknown-group"),
            "consumer-groups --reset-offsets --group grp --topic g1 --to-latest --execute",
            "consumer-groups --reset-offsets --group grp2 --topic g1 --to-latest --execute",
            *_all("groups", "07-list 10-list-state-bad 11-list-type"),
            *_all(
                "groups",
                "27-describe-inactive-members 28-describe-inactive-state "
                "31-reset-dry-run 34-reset-to-latest",
            ),
            "consumer-groups --reset-offsets --group grp --topic g1 --to-earliest --execute",
            *_all(
                "groups",
                "36-reset-shift-by-neg 38-reset-to-offset-too-high 39-reset-to-offset-negative "
                "46-reset-topic-partitions 47-reset-all-topics 50-reset-from-file "
                "57-reset-new-group-execute 58-reset-unknown-partition 59-delete-offsets "
                "61-describe-after-delete-offsets 62-delete 67-members-and-state",
            ),
        ],
    ),
    Scenario(
        "groups with members",
        [
            "topics --create --topic g1 --partitions 3",
            "topics --create --topic g2",
            "fill g1:0 300",
            "fill g2:0 300",
            "join grp g1",
            "join grp g1",
            f"join grp2 g2 {_STATIC}",
            *_all(
                "groups",
                "13-describe-offsets 14-describe-offsets-verbose 16-describe-members-verbose "
                "17-describe-state 18-describe-state-verbose 19-describe-all-groups "
                "21-describe-all-groups-state 24-delete-active 25-delete-offsets-active",
            ),
            "leave grp",
            "leave grp2",  # a static member stays until its session is over
            "groups.29-describe-static-left",
            "consumer-groups --reset-offsets --group grp --topic g1 --to-earliest --execute",
            "groups.51-reset-export-all-groups",
            "consumer-groups --delete --group grp",
            "groups.64-delete-all",
        ],
    ),
    Scenario(
        "offsets",
        [
            "topics --create --topic o1 --partitions 2",
            "fill o1:0 3",
            *_all(
                "offsets",
                "02-topic 05-max-timestamp 06-local-earliest 07-tiered 09-named-max-timestamp "
                "10-timestamp 11-timestamp-future 12-partitions 13-topic-partitions "
                "14-unknown-topic 16-bad-time 19-delete-records 20-after-delete-records "
                "21-delete-records-errors",
            ),
        ],
    ),
    Scenario(
        "one of four brokers down",
        [
            "topics --create --topic t4 --replica-assignment 1:2,2:3,4:1,3:4,1:3",
            "topics --create --topic t2 --replica-assignment 2:1,3:4,1:2,1:3,2:1,3:2",
            f"topics --create --topic t3 --replica-assignment 4:2:3,2:3:1 {_T3}",
            f"topics --create --topic u1 --replica-assignment 1:2:3,2:3:4,4:1:2 {_U1}",
            "topics --create --topic u2 --replica-assignment 4,1",
            "kill 4",
            *_all(
                "urp",
                "01-describe-broker-down 02-urp 03-unavailable 05-at-min-isr "
                "07-delete-while-replica-down 08-list-while-delete-pending "
                "09-create-while-delete-pending",
            ),
            "start 4",
            "settle",
            "topics --create --topic u2x",
            *_all(
                "urp",
                "11-describe-broker-back 12-leader-preferred-all 13-leader-preferred-again "
                "14-describe-after-election",
            ),
        ],
        options={"zookeeper.session.timeout.ms": 6000, "replica.lag.time.max.ms": 5000},
    ),
    Scenario(
        "too few in sync",
        [
            f"topics --create --topic u1 --replica-assignment 4:1:2,4:1:2,4:1:2 {_U1}",
            "kill 4",
            "urp.10-produce-not-enough-replicas",
        ],
        options={"zookeeper.session.timeout.ms": 6000},
    ),
    Scenario(
        "producers and consumers",
        [
            "topics --create --topic m1 --replica-assignment 1:2",
            *_all(
                "misc",
                "01-console-producer 02-console-producer-no-separator "
                "03-console-producer-headers 04-console-consumer 05-console-consumer-props "
                "06-console-consumer-partition-offset 07-console-consumer-unknown-topic "
                "19-replica-verification 27-producer-perf-print-metrics 28-consumer-perf "
                "29-consumer-perf-detailed 30-consumer-perf-too-few 31-e2e "
                "33-verifiable-consumer",
            ),
        ],
    ),
    Scenario(
        "others",
        [
            "topics --create --topic m1 --replica-assignment 1:2",
            "fill m1 3",
            *_all(
                "misc",
                "08-log-dirs 09-log-dirs-broker 10-log-dirs-unknown-broker 12-broker-api-versions "
                "14-features-describe 15-transactions-list",
            ),
        ],
    ),
)
