"""Suggestions for misspelt names."""

from collections.abc import Iterable, Mapping

from odradek.config.broker import BROKER_OPTIONS, find
from odradek.config.former import former_option
from odradek.config.option import InvalidConfigError


def suggestion(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`; did you mean ...?`, or "" if no name is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes only

    near = get_close_matches(name, list(names), 3, cutoff)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def check_broker_options(properties: Mapping[str, str]) -> list[str]:
    """Refuse misspelt and former names of broker options. Returns the other unknown names.

    Raises:
        InvalidConfigError: an unknown name is similar to a known one, or has a successor.
    """
    unknown = [name for name in properties if find(name) is None]
    for name in unknown:
        advice = former_option(name)
        if advice is not None:
            raise InvalidConfigError(f"{name}: an option of former Kafkas; {advice}")
        meant = suggestion(name, BROKER_OPTIONS, cutoff=0.85)
        if meant:
            raise InvalidConfigError(f"{name}: there is no such broker option{meant}")
    return unknown
