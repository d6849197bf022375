"""Snapshots and numbered changes of an open page."""

from odradek.web.live.channel import CHANGES_KEPT, PageChannel


def page(*parts: tuple[str, str]) -> str:
    return "<h1>t</h1>" + "".join(f"<!--live {name}-->{body}<!--/live-->" for name, body in parts)


def test_a_new_viewer_gets_the_whole_content():
    channel = PageChannel("c")
    channel.render(page(("a", "1")))

    assert channel.since("") == ("snapshot", page(("a", "1")))


def test_a_viewer_gets_only_the_parts_that_changed():
    channel = PageChannel("c")
    channel.render(page(("a", "1"), ("b", "1")))
    seen = channel.id
    channel.render(page(("a", "1"), ("b", "2")))

    assert channel.since(seen) == ("change", {"b": "2"})


def test_a_viewer_gets_the_words_of_a_long_part_that_changed():
    channel = PageChannel("c")
    sentence = "broker {} has all {} records"
    channel.render(page(("a", sentence.format(1, 70)), ("b", "1")))
    before = channel.id
    channel.render(page(("a", sentence.format(1, 71)), ("b", "1")))
    seen = channel.id
    channel.render(page(("a", sentence.format(1, 72)), ("b", "1")))

    assert channel.since(seen) == ("change", {"a": [(8, 1, "72")]})
    assert channel.since(before) == ("change", {"a": sentence.format(1, 72)})


def test_equal_content_is_no_change():
    channel = PageChannel("c")
    channel.render(page(("a", "1")))

    assert not channel.render(page(("a", "1")))
    assert channel.since(channel.id) is None


def test_a_viewer_that_missed_changes_gets_the_last_of_each_part():
    channel = PageChannel("c")
    channel.render(page(("a", "1"), ("b", "1")))
    seen = channel.id
    channel.render(page(("a", "2"), ("b", "1")))
    channel.render(page(("a", "3"), ("b", "1")))
    channel.render(page(("a", "3"), ("b", "9")))

    assert channel.since(seen) == ("change", {"a": "3", "b": "9"})


def test_a_new_part_is_a_snapshot_for_those_before_it():
    channel = PageChannel("c")
    channel.render(page(("a", "1")))
    before = channel.id
    channel.render(page(("a", "1"), ("b", "1")))
    after = channel.id
    channel.render(page(("a", "2"), ("b", "1")))

    assert channel.since(before)[0] == "snapshot"
    assert channel.since(after) == ("change", {"a": "2"})


def test_changes_that_are_no_longer_kept_are_a_snapshot():
    channel = PageChannel("c")
    channel.render(page(("a", "0")))
    seen = channel.id
    for number in range(1, CHANGES_KEPT + 2):
        channel.render(page(("a", str(number))))

    assert channel.since(seen)[0] == "snapshot"


def test_an_id_of_another_process_is_a_snapshot():
    channel = PageChannel("c")
    channel.render(page(("a", "1")))

    assert channel.since("d-1")[0] == "snapshot"
    assert channel.since("c-7")[0] == "snapshot"
    assert channel.since("c-x")[0] == "snapshot"
