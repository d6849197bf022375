"""Every finding of the doctor's tests is made once more of the same facts with hostile names.

The names of topics, groups, clients, hosts and directories, and the texts of errors, get a newline,
control characters, quotes and what a shell acts on. So no rule is tested without it.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial

import pytest

from odradek.cli.odradek.doctor import print_findings
from odradek.cli.output import printable_output
from odradek.plan.doctor import diagnose

FORGED = "ok: no problem was found"
HOSTILE = f'\'$(id)`id`; touch "PWNED" |\n{FORGED}\r\x1b]0;t\x07\x9b2J\u202e'
# The fields of facts and reports whose values others choose, or that name a path.
FOREIGN = {
    "client", "client_id", "group", "host", "instance_id", "listener", "member", "name", "option",
    "path", "principal", "problem", "reason", "software", "topic", "transactional_id", "user",
    "what", "why",
}  # fmt: skip
# What rules compare, or what is no text of others.
KEPT = frozenset({"", "HTTP", "PLAINTEXT", "User:ANONYMOUS"})


def _parts(value, field):
    """What a value consists of, each part with the field that it is in."""
    if is_dataclass(value) and not isinstance(value, type):
        return [(getattr(value, each.name), each.name) for each in fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value, value._fields, strict=True))
    if isinstance(value, Mapping):
        keys = [(key, "") for key in value]
        return keys + [(each, k if isinstance(k, str) else field) for k, each in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(each, field) for each in value]
    return []


def _names(value, found, field=""):
    """All texts that others choose, in facts."""
    if isinstance(value, str) and field in FOREIGN and value not in KEPT:
        found.add(value)
    for each, name in _parts(value, field):
        _names(each, found, name)


def _renamed(value, names):
    if isinstance(value, str) and not hasattr(value, "value"):  # an enum's member stays
        return names.get(value, value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{f.name: _renamed(getattr(value, f.name), names) for f in fields(value)}
        )
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_renamed(each, names) for each in value))
    if isinstance(value, Mapping):
        return {_renamed(key, names): _renamed(each, names) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(_renamed(each, names) for each in value)
    return value


def checked(facts, diagnose=diagnose):
    """The findings of these facts; those of hostile names are compared and printed."""
    plain = diagnose(facts)
    names = set()
    _names(facts, names)
    found = diagnose(_renamed(facts, {name: name + HOSTILE for name in names}))
    assert sorted(f.kind for f in found) == sorted(f.kind for f in plain)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), printable_output():
        print_findings(found)
    text = printed.getvalue()
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", text) is None, text
    assert text.count("\n") == 3 * len(found), text
    for finding in found:
        for command in finding.fix.commands:
            assert str(command).isprintable()
            assert shlex.split(str(command))[0] == command.words[0]
    return plain


@pytest.fixture(autouse=True)
def with_hostile_names(request, monkeypatch):
    if hasattr(request.module, "diagnose"):
        monkeypatch.setattr(request.module, "diagnose", checked)
    if hasattr(request.module, "RESTORED_RULES"):
        rules = request.module.RESTORED_RULES
        together = partial(checked, diagnose=lambda facts: [f for r in rules for f in r(facts)])
        monkeypatch.setattr(request.module, "RESTORED_RULES", (together,))
