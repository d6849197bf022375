"""What the views of one principal share: its connections, its facts and its moves.

Without log-in there is one workspace, with the properties that the page was started with. With
log-in each user has one, whose connections authenticate as that user: the brokers' authorizer
decides what it shows and changes.
"""

import pathlib
from collections.abc import Mapping
from typing import cast

from starlette.requests import Request

from odradek.web.facts.poller import FactKind, Poller
from odradek.web.facts.source import Source
from odradek.web.groups.collect import GroupCollector
from odradek.web.live.hub import Hub
from odradek.web.moves.mover import MoveRunner, MoveTurn


class Workspace:
    """`kinds` says how facts are collected; the groups' kinds are added."""

    def __init__(
        self, source: Source, kinds: Mapping[str, FactKind], moves: pathlib.Path, turn: MoveTurn
    ) -> None:
        self.source = source
        self.poller = Poller(source, {**GroupCollector().kinds(), **kinds})
        self.hub = Hub(self.poller)
        self.mover = MoveRunner(source.cluster, moves, turn=turn)

    async def close(self) -> None:
        """End its streams, its tasks and its connections; copies in the cluster go on."""
        self.hub.close()
        await self.mover.close()
        await self.poller.close()
        await self.source.close()


def workspace(request: Request) -> Workspace:
    """The workspace of the user who is logged in, or the only one."""
    own = getattr(request.state, "workspace", None)
    return cast("Workspace", own or request.app.state.workspace)
