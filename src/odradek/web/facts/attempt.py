"""A part of what is collected, which may fail without the rest."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from odradek.model.errors import OdradekError
from odradek.web.facts.source import ANSWER_S

T = TypeVar("T")


async def attempt(problems: dict[str, str], kind: str, asked: Awaitable[T], otherwise: T) -> T:
    """The answer; `otherwise`, and the reason in `problems`, if there is none soon."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asked
    except TimeoutError:
        problems[kind] = f"no answer within {ANSWER_S:.0f} s"
    except (OdradekError, ConnectionError) as error:
        problems[kind] = str(error)
    return otherwise
