"""A broker with a listener for its users, on which quotas are set, of ours or of Apache Kafka's."""

import asyncio
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kit import ROOT, apache, cases, mixed, quota_clients, raw

sys.path.append(str(ROOT))  # for tests.recorded

from acl_matrix import KafkaWorld

from odradek.security.acls import Requester
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.wire.messages.alter_configs import AlterConfigsResource
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
)

LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS: Final = ("admin", *(f"u{number}" for number in range(10)))
ADMIN: Final = Requester("User:admin", apache.HOST)
BROKER_ID: Final = "0"
STREAM_BYTES: Final = 60_000_000  # more than a client reads
_SETTLES_S: Final = 2.0  # until a broker has read changed quotas
_BROKER, _SET, _DELETE = 4, 0, 1

Entity = dict[str, str | None]
Quota = tuple[Entity, dict[str, float]]


class Broker:
    """One broker; its users log in with PLAIN."""

    def __init__(self, home: pathlib.Path, *, ours: bool) -> None:
        self.name = "odradek" if ours else "kafka"
        self.port = apache.free_port()
        home.mkdir()
        users = " ".join(f'user_{user}="{quota_clients.password(user)}"' for user in USERS)
        options = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.users.plain.sasl.jaas.config": f"{LOGIN} {users};",
            "min.insync.replicas": "1",
            "default.replication.factor": "1",
        }
        listeners = [f"USERS://{apache.HOST}:{self.port}"]
        self._zookeeper = None if ours else apache.ZooKeeper(home / "zookeeper")
        self._broker: mixed.OurBroker | apache.Broker
        if self._zookeeper is None:
            options["odradek.store.path"] = str(home / "coordination.db")
            self._broker = mixed.OurBroker(home / "broker", None, 0, options, listeners)
            self._broker.start()
        else:
            self._broker = apache.Broker(
                home / "broker", self._zookeeper.address, properties=options, listeners=listeners
            )
            self._broker.wait()
        self.plain = self._broker.address
        self.address = f"{apache.HOST}:{self.port}"
        raw.wait_for_brokers(self.plain, 1, timeout_s=60)
        for topic in quota_clients.TOPICS.values():
            raw.create_topic(self.plain, topic, 1)
        size = quota_clients.RECORD_BYTES
        filled = [quota_clients.TOPICS["consume"], "1", str(STREAM_BYTES // size), str(size)]
        cases.run_kit("native", "produce", self.plain, *filled)
        self._administrator = self.client()

    @property
    def pid(self) -> int:
        return self._broker.pid

    def stop(self) -> None:
        self._administrator.close()
        self._broker.stop()
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def client(self) -> KafkaWorld:
        """Clients that log in as the principal for whom they ask."""
        return KafkaWorld(self.port)

    def ask(self, request: Any) -> Any:
        """The answer to an administrator, whose connection is older than all limits."""
        return asyncio.run(self._administrator.ask(ADMIN, request))

    @contextmanager
    def quotas(self, *quotas: Quota) -> Iterator[None]:
        """These quotas are set meanwhile."""
        self._alter(quotas, remove=False)
        try:
            yield
        finally:
            self._alter(quotas, remove=True)

    def _alter(self, quotas: Sequence[Quota], *, remove: bool) -> None:
        entries = [
            EntryData(
                entity=[EntityData(entity_type=k, entity_name=v) for k, v in entity.items()],
                ops=[OpData(key=k, value=v, remove=remove) for k, v in rates.items()],
            )
            for entity, rates in quotas
        ]
        answer = self.ask(AlterClientQuotasRequest(entries=entries))
        faults = [entry for entry in answer.entries if entry.error_code]
        if faults:
            raise RuntimeError(f"{self.name} refuses quotas: {faults}")
        time.sleep(_SETTLES_S)

    @contextmanager
    def option(self, name: str, value: object) -> Iterator[None]:
        """A broker's option has this value meanwhile."""
        self._set_option(name, str(value))
        try:
            yield
        finally:
            self._set_option(name, None)

    def _set_option(self, name: str, value: str | None) -> None:
        config = AlterableConfig(
            name=name, config_operation=_DELETE if value is None else _SET, value=value
        )
        resource = AlterConfigsResource(
            resource_type=_BROKER, resource_name=BROKER_ID, configs=[config]
        )
        answer = self.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        if answer.responses[0].error_code:
            raise RuntimeError(f"{self.name} refuses {name}: {answer.responses}")
        time.sleep(_SETTLES_S)
