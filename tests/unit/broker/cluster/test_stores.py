"""The store that a configuration names, and what is refused before a connection is made."""

import asyncio
import pathlib
import random

import pytest

from odradek.broker.cluster.stores import store_of
from odradek.config.broker import BrokerConfig
from odradek.coord.sqlite import SqliteStore
from odradek.coord.zookeeper import ZooKeeperStore
from odradek.model.errors import StartupError
from odradek.net.clock import RealClock

ZOOKEEPER = {"zookeeper.connect": "zk:2181/kafka"}
OVER_TLS = {**ZOOKEEPER, "zookeeper.ssl.client.enable": "true"}


def store(options: dict[str, str]) -> object:
    async def made() -> object:
        config = BrokerConfig({"broker.id": "1", **options}, host_name="here")
        loop = asyncio.get_running_loop()
        return store_of(config, RealClock(), loop, random.Random(0))

    return asyncio.run(made())


def test_without_zookeeper_the_brokers_of_one_machine_share_a_file(tmp_path: pathlib.Path):
    found = store({"log.dirs": str(tmp_path / "data")})

    assert isinstance(found, SqliteStore)


def test_zookeeper_is_reached_in_the_clear_or_over_tls():
    assert isinstance(store(ZOOKEEPER), ZooKeeperStore)
    assert isinstance(store(OVER_TLS), ZooKeeperStore)


def test_with_an_authenticated_identity_znodes_may_be_restricted_to_it():
    own = {"zookeeper.set.acl": "true", "odradek.zookeeper.digest": "broker:secret"}

    assert isinstance(store({**ZOOKEEPER, **own}), ZooKeeperStore)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"zookeeper.set.acl": "true"}, "does not authenticate to ZooKeeper"),
        # A certificate does not authenticate without TLS.
        (
            {"zookeeper.set.acl": "true", "zookeeper.ssl.keystore.location": "own.pem"},
            "does not authenticate to ZooKeeper",
        ),
        ({"odradek.zookeeper.digest": "secret"}, "not `user:password`"),
        ({"odradek.zookeeper.digest": "broker:"}, "not `user:password`"),
    ],
)
def test_an_invalid_identity_is_refused(options: dict[str, str], complaint: str):
    with pytest.raises(StartupError, match=complaint):
        store({**ZOOKEEPER, **options})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"zookeeper.ssl.truststore.location": "t.jks"}, r"t.jks is of type JKS; only PEM"),
        ({"zookeeper.ssl.keystore.location": "k.p12"}, r"k.p12 is of type P12; only PEM"),
        (
            {
                "zookeeper.ssl.keystore.location": "k.pem",
                "zookeeper.ssl.keystore.type": "PKCS12",
            },
            "is of type PKCS12",
        ),
        ({"zookeeper.ssl.truststore.location": "nowhere.pem"}, r"nowhere.pem: .*No such file"),
        ({"zookeeper.ssl.keystore.location": "nowhere.pem"}, r"nowhere.pem: .*No such file"),
        ({"zookeeper.ssl.enabled.protocols": "TLSv1.2,SSLv3"}, r"names SSLv3; supported are"),
    ],
)
def test_a_tls_that_cannot_be_is_refused_with_what_to_do(options: dict[str, str], complaint: str):
    with pytest.raises(StartupError, match=complaint):
        store({**OVER_TLS, **options})
