"""Topics that are created because a request named them: once each, and in the background."""

import asyncio
import logging

from tests.unit.broker.live import play

from odradek.broker.admin.topic_maker import MADE_AT_ONCE, ByController, NewTopic, TopicMaker
from odradek.broker.cluster.peers import PeerError
from odradek.broker.serving.tasks import Tasks
from odradek.model.errors import ApiError, ErrorCode
from odradek.sim.world.loop import run
from odradek.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


class Maker:
    """A topic maker whose creations take a second, and fail if they are set to."""

    def __init__(self, *errors):
        self.created, self.failures = [], []
        self.errors = list(errors)
        loop = asyncio.get_running_loop()
        self.tasks = Tasks(loop, lambda name, error: self.failures.append(name))
        self.maker = TopicMaker(self.create, self.tasks)

    async def create(self, name, partitions, replication_factor, configs):
        self.created.append((name, partitions, replication_factor, dict(configs)))
        await asyncio.sleep(1)
        if self.errors:
            raise self.errors.pop(0)


def test_a_topic_that_is_being_made_is_not_made_twice():
    async def scenario():
        made = Maker()
        made.maker.make(["a", "b", "a"])
        made.maker.make(["b"])
        await asyncio.sleep(0.5)
        made.maker.begin(NewTopic("a", 3))
        await asyncio.sleep(1)
        made.maker.make(["a"])
        await asyncio.sleep(2)
        return made

    made = run(scenario())
    default = (-1, -1, {})
    assert made.created == [("a", *default), ("b", *default), ("a", *default)]
    assert made.failures == []


def test_a_topic_that_cannot_be_created_is_reported_and_may_be_tried_again(caplog):
    async def scenario():
        made = Maker(
            ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers"),
            ApiError(ErrorCode.TOPIC_ALREADY_EXISTS),
        )
        for _ in range(3):
            made.maker.make(["a"])
            await asyncio.sleep(2)
        return made

    with caplog.at_level(logging.WARNING):
        made = run(scenario())
    assert len(made.created) == 3
    assert made.failures == []
    (output,) = [record.getMessage() for record in caplog.records]
    assert "topic a" in output
    assert "too few brokers" in output


def test_it_ends_with_the_broker():
    async def scenario():
        made = Maker()
        made.maker.make(["a"])
        await asyncio.sleep(0.5)
        await made.tasks.cancel_all()
        made.maker.make(["a"])
        await asyncio.sleep(2)
        return made

    assert len(run(scenario()).created) == 2


# ----------------------------------------------------------------------- the whole broker


async def ask(live, *names, allow=True):
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=allow
    )
    return {t.name: ErrorCode(t.error_code) for t in (await live.peer().ask(request)).topics}


def test_a_second_request_finds_the_topic_with_the_brokers_defaults():
    async def story(live):
        assert await ask(live, "t", "u") == dict.fromkeys("tu", ErrorCode.LEADER_NOT_AVAILABLE)
        await live.until(lambda: {"t", "u"} <= set(live.broker.metadata.topics))

        assert await ask(live, "t", "u") == dict.fromkeys("tu", ErrorCode.NONE)
        assert len(live.broker.metadata.topic("t").partitions) == 3

    play(story, num_partitions=3)


def test_without_automatic_creation_no_topic_is_created():
    async def story(live):
        unknown = {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await ask(live, "t", allow=False) == unknown
        await asyncio.sleep(1)
        assert not live.broker.metadata.topics

    play(story)


def test_the_option_forbids_it():
    async def story(live):
        assert await ask(live, "t") == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await asyncio.sleep(1)
        assert not live.broker.metadata.topics

    play(story, auto_create_topics_enable="false")


def test_a_topic_that_is_asked_for_and_cannot_be_made_does_no_harm(caplog):
    async def story(live):
        for _ in range(3):
            assert await ask(live, "t") == {"t": ErrorCode.LEADER_NOT_AVAILABLE}
            await asyncio.sleep(1)
        assert not live.broker.metadata.topics

    play(story, default_replication_factor=3)
    assert "topic t could not be created automatically" in caplog.text


def test_many_names_in_one_request():
    async def story(live):
        names = [f"t{n}" for n in range(150)]
        assert set((await ask(live, *names)).values()) == {ErrorCode.LEADER_NOT_AVAILABLE}
        await live.until(lambda: len(live.broker.metadata.topics) == 150)
        assert live.broker.internal_topics._maker._being_made == set()

    play(story)


def test_no_more_than_so_many_are_made_at_once():
    async def scenario():
        made = Maker()
        names = [f"t{n}" for n in range(MADE_AT_ONCE + 500)]
        for expected in (MADE_AT_ONCE, MADE_AT_ONCE + 500):
            made.maker.make(names)
            await asyncio.sleep(0.5)
            made.maker.make(names)
            assert len(made.created) == expected
            await asyncio.sleep(1)
            names = names[MADE_AT_ONCE:]

    run(scenario())


class Here:
    """The controller on this broker, if this broker is the active one."""

    def __init__(self, *, is_controller):
        self.is_controller = is_controller
        self.created = []

    async def create_one(self, *topic):
        self.created.append(topic)


def by_controller(answer, *, is_controller=False):
    """What was asked of another controller, what was created here, and the outcome."""
    here, asked = Here(is_controller=is_controller), []

    async def ask(request, kind):
        assert kind is CreateTopicsResponse
        asked.append(request)
        if isinstance(answer, Exception):
            raise answer
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=answer)])

    async def scenario():
        try:
            await ByController(here, ask)("t", 3, 2, {"a": "b"})
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    return asked, here.created, run(scenario())


def test_the_controllers_broker_makes_topics_itself():
    assert by_controller(0, is_controller=True) == ([], [("t", 3, 2, {"a": "b"})], ErrorCode.NONE)


def test_every_other_broker_has_the_controller_make_them():
    (request,), created, error = by_controller(ErrorCode.REQUEST_TIMED_OUT)
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 3, 2)
    assert [(config.name, config.value) for config in topic.configs] == [("a", "b")]
    assert request.timeout_ms == 0
    assert (created, error) == ([], ErrorCode.NONE)


def test_the_controllers_error_is_raised():
    exists = ErrorCode.TOPIC_ALREADY_EXISTS
    assert by_controller(exists)[2] is exists
    assert by_controller(PeerError("no broker listens"))[2] is ErrorCode.NOT_CONTROLLER
