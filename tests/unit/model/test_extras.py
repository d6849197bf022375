"""The packages that a message asks for are those of pyproject.toml."""

import pathlib
import re
import sys
import tomllib

from odradek.model.extras import PACKAGES, install

PROJECT = tomllib.loads((pathlib.Path(__file__).parents[3] / "pyproject.toml").read_text())
DECLARED = PROJECT["project"]["optional-dependencies"]


def expanded(requirement):
    """The packages of `odradek[extra]`, or the package itself."""
    inside = re.fullmatch(r"odradek\[(\w+)\]", requirement)
    return [requirement] if inside is None else flat(inside[1])


def flat(extra):
    return [package for each in DECLARED[extra] for package in expanded(each)]


def test_the_packages_are_those_of_the_extras():
    assert {extra: set(packages) for extra, packages in PACKAGES.items()} == {
        extra: set(flat(extra)) for extra in DECLARED
    }


def test_the_command_can_be_pasted_into_a_shell(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/my home/bin/python")

    assert str(install("plan")) == "'/my home/bin/python' -m pip install 'scipy>=1.11'"
