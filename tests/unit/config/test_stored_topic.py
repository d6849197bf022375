"""Options of a topic that somebody has edited in the store."""

import pytest

from odradek.config.stored_topic import read_stored


def test_the_valid_options_hold_beside_an_invalid_one():
    stored = read_stored({"segment.bytes": "10", "cleanup.policy": "compact", "of.another": "x"})

    assert stored.valid == stored.in_effect == {"cleanup.policy": "compact", "of.another": "x"}
    assert list(stored.invalid) == ["segment.bytes"]
    assert "segment.bytes" in stored.invalid["segment.bytes"]


@pytest.mark.parametrize("name", ["cleanup.policy", "retention.ms", "retention.bytes"])
def test_nothing_is_deleted_while_what_decides_on_it_cannot_be_read(name):
    stored = read_stored({name: "compcat", "retention.ms" if name != "retention.ms" else "x": "5"})

    assert name in stored.invalid
    effect = stored.in_effect
    assert (effect["retention.ms"], effect["retention.bytes"]) == ("-1", "-1")
    assert name not in stored.valid
