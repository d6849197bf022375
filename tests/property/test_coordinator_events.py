"""Events and effects of the coordinators are data: printed as JSON, and read back."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.group import effects as group_effects
from odradek.group import events as group_events
from odradek.model.plain import from_plain, to_plain
from odradek.txn import effects as txn_effects
from odradek.txn import events as txn_events

UNIONS = {
    "group event": group_events.Event,
    "group effect": group_effects.Effect,
    "transaction event": txn_events.Event,
    "transaction effect": txn_effects.Effect,
}


@pytest.mark.parametrize(
    ("union", "kind"),
    [
        pytest.param(union, kind, id=f"{name} {kind.__name__}")
        for name, union in UNIONS.items()
        for kind in get_args(union)
    ],
)
@given(data=st.data())
def test_an_event_or_effect_is_read_back_from_json(union, kind, data):
    value = data.draw(st.from_type(kind))
    assert from_plain(union, json.loads(json.dumps(to_plain(value)))) == value
