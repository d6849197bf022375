"""New topics and partitions: their node appeared, or names more partitions than before.

CreateTopics writes the topic's node and nothing else; states, leaders and replicas follow from it
here. A node from before topic ids gets one, once: a topic that is known keeps its id, whatever an
older tool wrote to its node (KAFKA-14190).
"""

from dataclasses import replace

from odradek.controller.causes import Cause, CauseKind
from odradek.controller.context import Partition, Topic
from odradek.controller.effects import (
    Effect,
    ReadTopics,
    WriteTopics,
    mapping_in_slices,
    then_store,
)
from odradek.controller.events import TopicsChanged, TopicSeen, TopicsRead
from odradek.controller.machines import Machines
from odradek.controller.states import PartitionState
from odradek.controller.steps import CreatePartitions
from odradek.model.partition import TopicPartition

CREATED = Cause(CauseKind.TOPIC_CREATED)
EXPANDED = Cause(CauseKind.PARTITIONS_ADDED)


def topic_of(seen: TopicSeen) -> Topic:
    """A topic without partitions yet, under the id that its node has or is to get."""
    topic_id = seen.id or seen.spare_id
    assert topic_id is not None, seen
    return Topic(seen.name, topic_id)


def with_id(seen: TopicSeen, topic: Topic) -> TopicSeen:
    """The topic as its node is to be written."""
    return replace(seen, id=topic.id, spare_id=None)


def topics_changed(machines: Machines, event: TopicsChanged) -> list[Effect]:
    """Read the nodes of new topics; drop those whose node was removed by hand."""
    known = machines.context.topics
    present = frozenset(event.names)
    for name in [name for name in known if name not in present]:
        machines.deletion.drop(name)
    new = tuple(name for name in event.names if name not in known)
    return [ReadTopics(new)] if new else []


def topics_read(machines: Machines, event: TopicsRead) -> list[Effect]:
    """Create the partitions that are new in these nodes."""
    context = machines.context
    created: dict[TopicPartition, Cause] = {}
    without_id: list[TopicSeen] = []
    for seen in event.topics:
        topic = context.topics.get(seen.name)
        if topic is not None and seen.id not in (None, topic.id):
            machines.deletion.drop(seen.name)  # removed and created again before it was read
            topic = None
        cause = EXPANDED if topic else CREATED
        if topic is None:
            topic = context.topics[seen.name] = topic_of(seen)
        if seen.id is None:
            without_id.append(with_id(seen, topic))
        if seen.name not in context.being_deleted:
            for number, assignment in sorted(seen.assignments.items()):
                if number not in topic.partitions:
                    name = TopicPartition(seen.name, number)
                    topic.partitions[number] = Partition(name, assignment)
                    created[name] = cause
    effects: list[Effect] = [WriteTopics(tuple(without_id))] if without_id else []
    if created:
        effects += then_store(mapping_in_slices(CreatePartitions, created))
    return effects


def create_partitions(machines: Machines, step: CreatePartitions) -> None:
    """Elect the first leaders."""
    for partition in machines.context.known(step.partitions):
        partition.enter(PartitionState.NEW)
        machines.replicas.created(partition)
        machines.partitions.bring_online(partition, step.partitions[partition.name])
