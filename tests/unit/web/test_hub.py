"""The streams of open pages."""

import asyncio
from contextlib import suppress

import pytest

from odradek.model.clock import WallMs
from odradek.web.facts.poller import FactKey, FactKind, Poller
from odradek.web.live import hub as hubs
from odradek.web.live.hub import Hub, TooManyViewersError

KEY = FactKey("count")


def made() -> tuple[Hub, list[int]]:
    counts = [0]

    async def collect(_source, _argument, _before):
        counts[0] += 1
        return counts[0]

    wall_ms = iter(range(0, 1_000_000_000, 10_000))
    kinds = {"count": FactKind(collect, 1.0)}
    poller = Poller(None, kinds, wall_ms=lambda: WallMs(next(wall_ms)), period_s=0.0)
    return Hub(poller), counts


def render(facts) -> str:
    return f"<p>t</p><!--live n--><b id=n>{facts[KEY].value}</b><!--/live-->"


def test_a_viewer_gets_a_snapshot_and_then_changes():
    async def run() -> list[bytes]:
        hub, _ = made()
        found = []
        stream = hub.events("/", (KEY,), render, "")
        async for each in stream:
            found.append(each)
            if len(found) == 3:
                break
        await stream.aclose()
        return found

    found = asyncio.run(run())
    assert [each.split(b"\n")[0] for each in found] == [
        b"event: snapshot", b"event: change", b"event: change",
    ]  # fmt: skip
    numbers = [int(each.split(b"\n")[1].rpartition(b"-")[2]) for each in found]
    assert numbers == sorted(set(numbers))


def test_all_viewers_of_a_page_share_its_facts_and_nothing_is_collected_afterwards():
    async def run() -> None:
        hub, counts = made()
        streams = [hub.events("/", (KEY,), render, "") for _ in range(3)]
        firsts = [await anext(stream) for stream in streams]
        assert len(set(firsts)) <= 2  # the later ones may see a newer state
        for stream in streams:
            await stream.aclose()
        stopped_at = counts[0]
        for _ in range(20):
            await asyncio.sleep(0)
        assert counts[0] == stopped_at

    asyncio.run(run())


def test_the_number_of_viewers_is_limited(monkeypatch):
    async def run() -> None:
        hub, _ = made()
        monkeypatch.setattr(hubs, "VIEWERS_MAX", 1)
        first, second = (hub.events(f"/{n}", (KEY,), render, "") for n in range(2))
        await anext(first)
        with pytest.raises(TooManyViewersError):
            await anext(second)
        await first.aclose()
        third = hub.events("/", (KEY,), render, "")
        await anext(third)  # the place is free again
        await third.aclose()

    asyncio.run(run())


def test_closing_ends_the_streams():
    async def run() -> None:
        hub, _ = made()
        stream = hub.events("/", (KEY,), render, "")
        await anext(stream)
        hub.close()
        with suppress(StopAsyncIteration):
            for _ in range(3):
                await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(run())
