"""The store in a real ZooKeeper of three servers that are killed, hang and restart."""

import asyncio
import math
import pathlib
import random
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator

import pytest
import raw
from apache import free_port
from ensemble import Ensemble, Server
from mixed import OurBroker

from odradek.coord.store import ConnectionLostError, Create, NodeExistsError, SessionExpiredError
from odradek.coord.zookeeper import ZooKeeperStore
from odradek.model.errors import StartupError

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("ensemble"), 3)
    ensemble.settle()
    yield ensemble
    ensemble.close()


@pytest.fixture
def one(tmp_path: pathlib.Path) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path, 1)
    yield ensemble
    ensemble.close()


def store_at(address: str, **options) -> ZooKeeperStore:
    return ZooKeeperStore(
        address,
        call_soon=asyncio.get_running_loop().call_soon_threadsafe,
        randomness=random.Random(0),
        **{"session_timeout_ms": 4_000, **options},
    )


def server_of(ensemble: Ensemble, store: ZooKeeperStore) -> Server:
    """The server that the store is connected to."""
    return ensemble.serving(store._client._connection._socket.getpeername()[1])


class Writer:
    """Creates one node after the other, and keeps the outcome of each."""

    def __init__(self, store: ZooKeeperStore, parent: str) -> None:
        self.acked: list[str] = []
        self.unknown: list[str] = []
        self.done_s: list[float] = []
        self._store = store
        self._parent = parent
        self._task = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        number = 0
        while True:
            path = f"{self._parent}/{number}"
            number += 1
            try:
                await self._store.create(path)
            except ConnectionLostError:
                self.unknown.append(path)
                continue
            self.acked.append(path)
            self.done_s.append(time.monotonic())

    async def reach(self, count: int) -> None:
        """Wait until `count` more are acknowledged."""
        count += len(self.acked)
        async with asyncio.timeout(30):
            while len(self.acked) < count:
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@pytest.mark.parametrize("fault", ["killed", "paused"])
@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_session_outlives_its_server(three: Ensemble, victim: str, fault: str):
    async def main() -> None:
        parent = f"/{victim}-{fault}"
        server = three.in_mode(victim)
        others = [s for s in three.servers if s is not server]
        # The victim first, without the shuffle.
        store = store_at(",".join(s.address for s in (server, *others)))
        store._servers.sort(key=lambda address: address != server.address)
        await store.open()
        store.on_session_lost = lambda: lost.append(1)
        lost: list[int] = []
        session = store.session_id
        assert server_of(three, store) is server
        await store.create(parent)
        await store.create(f"{parent}-alive", ephemeral=True)
        fired = asyncio.Event()
        await store.get(f"{parent}-alive", watch=fired.set)
        writer = Writer(store, parent)
        await writer.reach(50)
        getattr(server, {"killed": "kill", "paused": "pause"}[fault])()
        await writer.reach(1)  # the one in flight
        await writer.reach(50)
        assert server_of(three, store) is not server
        await asyncio.wait_for(fired.wait(), 10)
        await writer.stop()

        assert not lost
        assert store.session_id == session
        assert (await store.exists(f"{parent}-alive")).ephemeral_owner == session
        there = await store.get_many([*writer.acked, *writer.unknown])
        assert None not in there[: len(writer.acked)]
        # One was in flight at a time: at most one for each connection that was lost.
        assert len(writer.unknown) <= 3
        gap_s = max(b - a for a, b in zip(writer.done_s, writer.done_s[1:], strict=False))
        # A killed server is noticed at once, a paused one after two thirds of the session's
        # time-out; after the leader, the others have to elect a new one first, without a bound.
        bounds_s = {("follower", "killed"): 1.5, ("follower", "paused"): 3.9}
        assert gap_s < bounds_s.get((victim, fault), math.inf)
        await store.close()

        if fault == "killed":
            server.start()
        else:
            server.resume()
        await asyncio.to_thread(three.settle)

    asyncio.run(main())


def test_a_session_outlives_the_restart_of_the_only_server(one: Ensemble):
    async def main() -> None:
        (server,) = one.servers
        store = store_at(one.address, session_timeout_ms=10_000)
        await store.open()
        session = store.session_id
        await store.create("/a", b"1")
        fired = asyncio.Event()
        await store.get("/a", watch=fired.set)
        server.kill()
        reads = [asyncio.ensure_future(store.get("/a")) for _ in range(30)]
        done, _ = await asyncio.wait(reads, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        assert not done
        assert not fired.is_set()
        server.start()
        for data, stat in await asyncio.wait_for(asyncio.gather(*reads), 20):
            assert (data, stat.version) == (b"1", 0)
        assert fired.is_set()
        assert store.session_id == session
        await store.set_data("/a", b"2", version=0)
        await store.close()

    asyncio.run(main())


def test_a_session_that_expired_meanwhile_is_reported_at_the_next_connection(one: Ensemble):
    async def main() -> None:
        (server,) = one.servers
        store, other = store_at(one.address), store_at(one.address, session_timeout_ms=20_000)
        await store.open()
        await other.open()
        await store.create("/e", ephemeral=True)
        lost = asyncio.Event()
        store.on_session_lost = lost.set
        # The connection is cut on our side only: the server continues, and receives nothing.
        expired = asyncio.Event()
        await other.exists("/e", watch=expired.set)
        store._client.handler.may_connect = False
        store._client._connection._socket.shutdown(2)
        with pytest.raises(ConnectionLostError):
            await store.create("/f")
        await asyncio.wait_for(expired.wait(), 20)
        assert not lost.is_set()
        store._client.handler.may_connect = True
        await asyncio.wait_for(lost.wait(), 10)
        with pytest.raises(SessionExpiredError):
            await store.create("/f")
        await store.open()
        await store.create("/e", ephemeral=True)
        with pytest.raises(NodeExistsError):
            await other.create("/e")
        await store.close()
        assert await other.exists("/e") is None
        await other.close()
        assert server.mode() == "standalone"

    asyncio.run(main())


def test_servers_without_a_majority_do_not_serve(tmp_path: pathlib.Path):
    ensemble = Ensemble(tmp_path, 3)
    try:
        ensemble.servers[0].kill()
        ensemble.servers[1].kill()

        async def main() -> None:
            store = store_at(ensemble.address, connection_timeout_ms=1_500)
            with pytest.raises(StartupError, match=r"not ready within 1500 ms"):
                await store.open()
            ensemble.servers[0].start()
            await asyncio.to_thread(ensemble.servers[0].wait)
            await store.open()
            await store.create("/a")
            await store.close()

        asyncio.run(main())
    finally:
        ensemble.close()


def test_secured_nodes_are_for_brokers_only(one: Ensemble):
    async def main() -> None:
        broker = store_at(
            one.address + "/kafka", auth=[("digest", "broker:secret")], is_secured=True
        )
        second = store_at(one.address + "/kafka", auth=[("digest", "broker:secret")])
        stranger = store_at(one.address + "/kafka")
        for store in (broker, second, stranger):
            await store.open()
        await broker.create("/config/users/u", b"{}", make_parents=True)
        await broker.create("/consumers")
        await broker.create("/brokers", b"x")

        await second.set_data("/config/users/u", b"{1}")
        assert (await stranger.get("/brokers"))[0] == b"x"
        for refused in (
            stranger.set_data("/brokers", b""),
            stranger.create("/brokers/ids"),
            stranger.get("/config/users/u"),
        ):
            with pytest.raises(Exception, match="its ACL in ZooKeeper"):
                await refused
        with pytest.raises(Exception, match="its ACL in ZooKeeper"):
            await stranger.get_many(["/brokers", "/config/users/u"])
        await stranger.create("/consumers/group")
        for store in (broker, second, stranger):
            await store.close()

    asyncio.run(main())


def certify(home: pathlib.Path, name: str, authority: str | None) -> pathlib.Path:
    """A key with its certificate in one PEM file; without an authority it becomes one."""
    key, cert, asked = (home / f"{name}.{kind}" for kind in ("key", "cert", "asked"))
    new = ["req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-subj", f"/CN={name}"]
    if authority is None:
        commands = [[*new, "-x509", "-days", "2", "-out", cert]]
    else:
        (home / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
        sign = ["x509", "-req", "-in", asked, "-out", cert, "-days", "2", "-CAcreateserial"]
        sign += ["-CA", home / f"{authority}.cert", "-CAkey", home / f"{authority}.key"]
        commands = [[*new, "-out", asked], [*sign, "-extfile", home / "extensions"]]
    for command in commands:
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)
    both = home / f"{name}.pem"
    both.write_text(key.read_text() + cert.read_text())
    return both


def over_tls(home: pathlib.Path, port: int) -> dict[str, str]:
    """A server's options: it serves there, and a client must have a certificate of ours."""
    return {
        "secureClientPort": str(port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(home / "server.pem"),
        "ssl.trustStore.location": str(home / "ca.cert"),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_over_tls_both_sides_present_certificates_and_the_brokers_is_its_identity(
    tmp_path: pathlib.Path,
):
    for name, authority in (("ca", None), ("server", "ca"), ("broker", "ca"), ("evil", None)):
        certify(tmp_path, name, authority)
    port = free_port()
    options = over_tls(tmp_path, port)

    def context(authority: str, identity: str | None) -> ssl.SSLContext:
        tls = ssl.create_default_context(cafile=str(tmp_path / f"{authority}.cert"))
        if identity is not None:
            tls.load_cert_chain(str(tmp_path / f"{identity}.pem"))
        return tls

    async def main(plain: str) -> None:
        secure = f"127.0.0.1:{port}/kafka"
        broker = store_at(secure, tls=context("ca", "broker"), is_secured=True)
        await broker.open()
        await broker.create("/brokers", b"x" * 500_000)
        await broker.multi_many([[Create(f"/brokers/{n}", b"%d" % n)] for n in range(500)])
        found = await broker.get_many([f"/brokers/{n}" for n in range(500)])
        assert [node[0] for node in found] == [b"%d" % n for n in range(500)]
        assert len((await broker.get("/brokers"))[0]) == 500_000
        stranger = store_at(f"{plain}/kafka")
        await stranger.open()
        with pytest.raises(Exception, match="its ACL in ZooKeeper"):
            await stranger.set_data("/brokers", b"")
        await stranger.close()
        await broker.close()

        for tls, complaint in (
            (context("evil", "broker"), "certificate verify failed"),
            (context("ca", None), "alert"),
            (context("ca", "evil"), "alert"),
        ):
            refused = store_at(secure, tls=tls, connection_timeout_ms=700)
            with pytest.raises(StartupError, match=complaint):
                await refused.open()

    one = Ensemble(tmp_path / "zookeeper", 1, options)
    try:
        asyncio.run(main(one.address))
    finally:
        one.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_our_brokers_znodes_are_secured_over_tls(tmp_path: pathlib.Path):
    for name, authority in (("ca", None), ("server", "ca"), ("broker", "ca")):
        certify(tmp_path, name, authority)
    port = free_port()
    options = over_tls(tmp_path, port)
    one = Ensemble(tmp_path / "zookeeper", 1, options)
    broker = OurBroker(
        tmp_path / "broker",
        f"127.0.0.1:{port}/kafka",
        7,
        {
            "min.insync.replicas": "1",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(tmp_path / "ca.cert"),
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.keystore.location": str(tmp_path / "broker.pem"),
            "zookeeper.set.acl": "true",
        },
    )
    try:
        broker.start()
        raw.wait_for_brokers(broker.address, 1, timeout_s=30)
        raw.create_topic(broker.address, "guarded", 2)

        async def main() -> None:
            stranger = store_at(f"{one.address}/kafka")
            await stranger.open()
            assert (await stranger.children("/brokers/topics")) == ["guarded"]
            for path in ("/brokers/ids/7", "/brokers/topics/guarded", "/controller"):
                with pytest.raises(Exception, match="its ACL in ZooKeeper"):
                    await stranger.set_data(path, b"")
            await stranger.close()

        asyncio.run(main())
        broker.stop()
    finally:
        broker.end()
        one.close()
