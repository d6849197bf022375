"""Notifications in the store are followed, whatever else somebody writes, deletes or puts back."""

import json

import pytest

from odradek.coord.layout_config import CONFIG_CHANGES
from odradek.coord.store import Create, Delete, SetData, StoreError


def notice(number, entity_path="topics/t"):
    data = json.dumps({"version": 2, "entity_path": entity_path}).encode()
    return Create(f"{CONFIG_CHANGES}/config_change_{number}", data)


async def retention_becomes(cluster, node, value, number):
    """Change the topic's option and notify as another broker does."""
    data = json.dumps({"version": 1, "config": {"retention.ms": value}}).encode()
    write = SetData if await cluster.store.exists("/config/topics/t") else Create
    await cluster.store.multi([write("/config/topics/t", data), notice(number)])
    await cluster.until(lambda: node.topic_overrides.get("t") == {"retention.ms": value})


async def remove_all_notices(cluster):
    names = await cluster.store.children(CONFIG_CHANGES)
    deletions = [Delete(f"{CONFIG_CHANGES}/{name}") for name in names]
    await cluster.store.multi([*deletions, Delete(CONFIG_CHANGES)])


@pytest.mark.parametrize(
    "bad",
    [
        notice("2147483647"),
        notice("9" * 5000),
        notice("0000000007", "topics/.."),
        notice("0000000007", "topics/\ud800"),
        notice("0000000007", "brokers"),
        Create(f"{CONFIG_CHANGES}/config_change_0000000007", b"\xff"),
        Create(f"{CONFIG_CHANGES}/config_change_0000000007"),
        Create(f"{CONFIG_CHANGES}/other"),
    ],
)
def test_a_change_is_applied_behind_a_notification_that_cannot_be(play, bad):
    async def story(cluster):
        node = await cluster.start(1)
        await cluster.store.multi([bad])

        await retention_becomes(cluster, node, "1000", "0000000005")
        await retention_becomes(cluster, node, "2000", "0000000008")

    play(story)


def test_notifications_are_followed_whose_parent_was_deleted_and_created_again(play):
    async def story(cluster):
        node = await cluster.start(1)
        await retention_becomes(cluster, node, "1000", "0000000000")
        await remove_all_notices(cluster)
        await cluster.until(lambda: cluster.tree.find(CONFIG_CHANGES) is not None)

        await retention_becomes(cluster, node, "2000", "0000000000")

    play(story)


def test_a_notification_in_the_place_of_another_is_handled(play):
    async def story(cluster):
        node = await cluster.start(1)
        await retention_becomes(cluster, node, "1000", "0000000000")
        data = json.dumps({"version": 1, "config": {"retention.ms": "2000"}}).encode()
        again = notice("0000000000")
        await cluster.store.multi([SetData("/config/topics/t", data), Delete(again.path), again])

        await cluster.until(lambda: node.topic_overrides["t"] == {"retention.ms": "2000"})

    play(story)


def test_notifications_of_a_store_that_was_put_back_have_lower_numbers(play):
    async def story(cluster):
        node = await cluster.start(1)
        await retention_becomes(cluster, node, "1000", "0000000900")
        node.dynamic.session_opened()

        await retention_becomes(cluster, node, "2000", "0000000003")

    play(story)


def test_a_change_that_cannot_be_followed_does_not_end_the_following(play, caplog):
    async def story(cluster):
        node = await cluster.start(1)
        usual, errors = node.dynamic.learn, [StoreError("no such path"), ValueError("no number")]

        async def learn(topics):
            if errors:
                raise errors.pop()
            await usual(topics)

        node.dynamic.learn = learn

        await retention_becomes(cluster, node, "1000", "0000000001")
        assert not errors

    play(story)

    assert "a change in the coordination store cannot be followed" in caplog.text
