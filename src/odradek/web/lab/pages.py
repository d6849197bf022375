"""The laboratory: what one does with a cluster of a directory on this machine.

Each action is a method of the supervisor, as the commands `odradek kill 1` and so on; it runs in a
thread, because it waits for processes. A broker is cut off by the faults of the brokers themselves
(`odradek.local.faults`), if they were started for it.
"""

import asyncio
import json
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from odradek.client.admin.topics import NewTopic, create_topics
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.local.directory import ClusterDirectory
from odradek.local.faults import STORE, ClusterFaults
from odradek.local.options import UpOptions
from odradek.local.supervisor import Supervisor
from odradek.model.errors import ErrorCode, OdradekError
from odradek.web.facts.cluster import ClusterOverview
from odradek.web.facts.poller import Facts
from odradek.web.facts.source import Source
from odradek.web.guard import form_of, writes
from odradek.web.live.view import LiveView
from odradek.web.now.view import CLUSTER
from odradek.web.workspace import workspace

SAMPLE_TOPIC: Final = "sample"
SAMPLE_RECORDS: Final = 1_000
_ACTIONS: Final[Mapping[str, Callable[[Supervisor, int], None]]] = {
    "kill": Supervisor.kill,
    "pause": Supervisor.pause,
    "resume": Supervisor.resume,
    "stop": Supervisor.stop,
    "start": Supervisor.start,
    "restart": Supervisor.restart,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabBroker:
    """A broker's process and what can be done with it."""

    id: int
    state: str
    is_registered: bool
    actions: tuple[str, ...]  # also commands of `odradek`
    is_cut_off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LabView:
    """The processes of the cluster."""

    problem: str | None
    options: tuple[str, ...]
    brokers: tuple[LabBroker, ...]
    can_cut_off: bool = False


def lab_view(
    facts: Facts,
    options: tuple[str, ...],
    cut_off: Collection[int] = (),
    *,
    can_cut_off: bool = False,
) -> LabView:
    """The view; `options` are those of a command that names the directory."""
    seen = facts.get(CLUSTER)
    cluster: ClusterOverview | None = seen.value if seen else None
    return LabView(
        problem=seen.problem if seen else None,
        options=options,
        can_cut_off=can_cut_off,
        brokers=tuple(
            LabBroker(
                id=broker.id,
                state=broker.process or "not here",
                is_registered=broker.is_registered,
                actions=_possible(broker.process),
                is_cut_off=broker.id in cut_off,
            )
            for broker in (cluster.brokers if cluster else ())
        ),
    )


def _possible(state: str | None) -> tuple[str, ...]:
    if state == "paused":
        return ("resume", "kill")
    if state in ("running", "starting"):
        return ("pause", "kill", "stop", "restart")
    return ("start",) if state is not None else ()


VIEW = LiveView(
    "/lab",
    "lab.html",
    lambda _request: (CLUSTER,),
    lambda facts, request: lab_view(
        facts,
        workspace(request).source.named.options,
        _cut_off(request),
        can_cut_off=_directory(workspace(request).source).has_faults,
    ),
)


def _cut_off(request: Request) -> set[int]:
    """The brokers that are cut off; of this process, because brokers do not report it."""
    state = request.app.state
    if not hasattr(state, "lab_cut_off"):
        state.lab_cut_off = set()
    found: set[int] = state.lab_cut_off
    return found


def _directory(source: Source) -> ClusterDirectory:
    if source.directory is None:
        raise HTTPException(
            404, "the laboratory needs --dir: the processes are not on this machine"
        )
    return ClusterDirectory(source.directory)


def _supervisor(source: Source, said: list[str]) -> Supervisor:
    return Supervisor(_directory(source), say=said.append)


@writes
async def act(request: Request) -> Response:
    """POST /lab: an action on one broker."""
    fields = await form_of(request)
    action, number = _ACTIONS.get(fields.get("action", "")), fields.get("broker", "")
    if action is None or not number.isdecimal():
        raise HTTPException(400, f"action is one of {', '.join(_ACTIONS)}, broker a number")
    said: list[str] = []
    supervisor = _supervisor(workspace(request).source, said)
    await _in_thread(action, supervisor, int(number))
    if cut_off := _cut_off(request):  # a new process is connected to all, and a resumed one may be
        await _in_thread(_part, _directory(workspace(request).source), cut_off)
    return JSONResponse({"says": "; ".join(said) or f"{fields['action']} broker {number}: done"})


@writes
async def cut(request: Request) -> Response:
    """POST /lab/cut: cut one broker off from the others and the coordination store, or connect it.

    Clients reach it all the same, as this page does.
    """
    fields = await form_of(request)
    number, directory = fields.get("broker", ""), _directory(workspace(request).source)
    brokers = directory.expect().brokers
    if not number.isdecimal() or int(number) not in brokers:
        raise HTTPException(400, f"broker is one of {', '.join(map(str, sorted(brokers)))}")
    if not directory.has_faults:
        raise HTTPException(409, "the brokers were not started for it: odradek up --faults")
    kept = _cut_off(request)
    wanted = kept ^ {int(number)}
    await _in_thread(_part, directory, wanted)
    is_cut = int(number) in wanted
    kept ^= {int(number)}
    return JSONResponse({"says": f"broker {number} is {'cut off' if is_cut else 'connected'}"})


def _part(directory: ClusterDirectory, cut_off: Collection[int]) -> None:
    """Each of these brokers on its own, and the others with the coordination store."""
    faults = ClusterFaults(directory)
    if not cut_off:
        faults.heal()
        return
    others = [broker for broker in directory.expect().brokers if broker not in cut_off]
    faults.partition(*([broker] for broker in sorted(cut_off)), [*others, STORE])


@writes
async def add(request: Request) -> Response:
    """POST /lab/add: one more broker."""
    said: list[str] = []
    supervisor = _supervisor(workspace(request).source, said)
    count = len((await asyncio.to_thread(supervisor.status))["brokers"]) + 1
    await _in_thread(Supervisor.up, supervisor, UpOptions(brokers=count))
    return JSONResponse({"says": "; ".join(said) or f"broker {count - 1} was added"})


async def _in_thread(action: Callable[..., None], *arguments: object) -> None:
    try:
        await asyncio.to_thread(action, *arguments)
    except OdradekError as error:
        raise HTTPException(409, str(error)) from None


@writes
async def fill(request: Request) -> Response:
    """POST /lab/fill: a topic with sample records."""
    cluster = await workspace(request).source.cluster()
    brokers = len(await cluster.nodes())
    try:
        outcomes = await create_topics(
            cluster, [NewTopic(SAMPLE_TOPIC, partitions=3, replication_factor=min(3, brokers))]
        )
        refused = outcomes[SAMPLE_TOPIC]
        if refused is not None and refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise refused
        source: Source = workspace(request).source
        async with await Producer.open(ProducerSettings.from_properties(source.properties)) as out:
            deliveries = [
                await out.send(SAMPLE_TOPIC, _sample(each), key=f"customer-{each % 50}".encode())
                for each in range(SAMPLE_RECORDS)
            ]
            await asyncio.gather(*deliveries)
    except (OdradekError, ConnectionError) as error:
        raise HTTPException(409, str(error)) from None
    return JSONResponse({"says": f"{SAMPLE_RECORDS} records are in {SAMPLE_TOPIC}"})


def _sample(number: int) -> bytes:
    draw = random.Random(number)
    return json.dumps(
        {"order": number, "customer": number % 50, "amount": draw.randrange(100, 90_000) / 100}
    ).encode()


ROUTES = (
    VIEW.route(),
    Route("/lab", act, methods=["POST"]),
    Route("/lab/cut", cut, methods=["POST"]),
    Route("/lab/add", add, methods=["POST"]),
    Route("/lab/fill", fill, methods=["POST"]),
)
