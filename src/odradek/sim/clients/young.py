"""Topics that are created and deleted while transactions write to them.

Transactions have to survive: a coordinator whose broker does not have a topic in its metadata yet,
markers to partitions that were just deleted or added, and DeleteRecords below, within and behind an
open transaction.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.sim.clients.admins import Administrator
from odradek.sim.clients.client import Client
from odradek.sim.clients.transactions import YOUNG

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

_TOPICS_MAX: Final = 8
_NAMES: Final = 10


class YoungAdministrator(Administrator):
    """An administrator whose topics exist for a few seconds each."""

    def __init__(self, workload: "Workload", client: Client) -> None:
        super().__init__(workload, client)
        self._pause_s = self._random.choice((0.4, 1.0, 2.5))

    async def run(self, steady: int = 0) -> None:
        """Create, extend and delete topics, and delete records, until the workload ends."""
        assert not steady
        while not self._workload.is_over:
            await asyncio.sleep(self._random.expovariate(1 / self._pause_s))
            young = [t for t in self._workload.topics if t.name.startswith(YOUNG)]
            chance = self._random.random()
            if not young or (len(young) < _TOPICS_MAX and chance < 0.5):
                # On two brokers of three: the coordinator's may be the one without a replica.
                self._factor = min(self._workload.replication_factor, self._random.choice((2, 3)))
                name = f"{YOUNG}-{self._random.randrange(_NAMES)}"
                await self._create(name, retention=False)
                self._workload.happened["young topics made"] += 1
            elif chance < 0.6 and len(young) > 1:
                await self._delete(self._random.choice(young))
                self._workload.happened["young topics deleted"] += 1
            elif chance < 0.75:
                await self._grow(self._random.choice(young))
            else:
                await self._delete_records(self._random.choice(young))
