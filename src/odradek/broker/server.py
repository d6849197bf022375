"""One broker: starts everything, and stops it in the opposite order.

    1  store             a session; the cluster's id
    2  log directories   locked, identified, their logs loaded and recovered
    3  age               a store that is older than the logs is raised to what they prove
    4  listeners         bound, so that the ports are known
    5  registration      `/brokers/ids/N`; the controller sees this broker from here on
    6  controller        the election; the winner is the active controller
    7  housekeeping      checkpoints, retention, flushes, idle connections

The parts of a broker are in `odradek.broker.wiring.parts`.
"""

import logging
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from odradek.broker.admin.stored_passwords import reencode
from odradek.broker.cluster.decoy_secret import decoy_secret
from odradek.broker.cluster.early_requests import EarlyRequests
from odradek.broker.cluster.store_age import StoreComparison
from odradek.broker.storage.housekeeping import in_slices
from odradek.broker.wiring.acls import load_acls
from odradek.broker.wiring.authentication import (
    OAUTHBEARER,
    SaslSources,
    listeners_with,
    open_sasl,
    uses_scram,
)
from odradek.broker.wiring.options import refuse_unsupported
from odradek.broker.wiring.parts import BrokerParts
from odradek.config.broker import BrokerConfig
from odradek.config.former import former_option
from odradek.model.cluster import Broker as RegisteredBroker
from odradek.model.cluster import EndPoint

log = logging.getLogger(__name__)


class Broker(BrokerParts):
    """One broker from its start to its stop; it is never started again."""

    async def start(self) -> None:
        """Start; when this returns, requests are served.

        Raises:
            StartupError: the reason why the broker cannot start, and what to do.
        """
        config = self.config
        refuse_unsupported(config)
        _warn_of_options(config)
        await self.lifecycle.open()
        self.cluster_id = await self.lifecycle.cluster_id()
        await self.lifecycle.persist(self.dynamic_config.load)
        passwords = self.config_admin.passwords
        if passwords.has_former_secret:
            again = partial(reencode, self._world.store, config.broker_id, passwords)
            await self.lifecycle.persist(again)
        await self._load_security()
        self.state = "recovering"
        opening = self.logs.opening(broker_id=config.broker_id, cluster_id=self.cluster_id)
        await in_slices(opening, self._world.clock)
        self._log_strays()
        await self.lifecycle.persist(self.features.learn)
        await self.lifecycle.persist(self.coordinator_counts.load)
        comparison = await self._compare_with_store()
        early = EarlyRequests(self.server.wrap_frames)
        self.end_points = await self._listen()
        me = RegisteredBroker(
            id=config.broker_id, end_points=self.end_points, rack=config.broker_rack
        )
        self._registered(await self._register(me, comparison))
        early.registered()
        self.tasks.start(self.controller.run(), "controller")
        self.tasks.start(self.lifecycle.keep_registered(me, comparison), "registration")
        self.tasks.start(comparison.run(), "store comparison")
        self.tasks.start(self.features.run(), "features")
        self.tasks.start(self.dynamic_config.run(), "dynamic configuration")
        if self.acl_changes is not None:
            self.tasks.start(self.acl_changes.run(), "ACLs")
        if self.delegation_tokens is not None:
            self.tasks.start(self.delegation_tokens.run(), "delegation tokens")
        # From here on a Metadata response names at least this broker.
        if not await self.metadata.wait_for(
            lambda: config.broker_id in self.metadata.brokers,
            config.zookeeper_session_timeout_ms,
        ):
            log.warning("no controller has announced this broker yet")
        self.log_dir_moves.resume()
        self.housekeeping.start(config)
        self.cleaner.start()
        self.state = "running"

    async def _compare_with_store(self) -> StoreComparison:
        comparison = self.store_comparison = StoreComparison(
            self._world.store,
            self.logs,
            self.replicas,
            self._world.clock,
            broker_id=self.config.broker_id,
        )
        await self.lifecycle.persist(comparison.before_registration)
        return comparison

    async def _register(self, me: RegisteredBroker, comparison: StoreComparison) -> int:
        """Register. Returns the broker epoch."""
        # Log directories that were put back to an earlier state lack what was flushed since.
        clean_epoch = None if comparison.age.disks_behind else self.logs.clean_epoch
        register = partial(
            self.lifecycle.register,
            me,
            clean_epoch=clean_epoch,
            is_empty=self.logs.is_empty or bool(self.logs.new_directories),
            is_put_back=comparison.age.is_put_back,
            new_directories=self.logs.new_directories,
        )
        return await self.lifecycle.persist(register)

    async def stop(self, *, together_with: Collection[int] = ()) -> None:
        """Stop cleanly, also after a start that failed.

        `together_with` are the brokers that are being stopped at the same time.
        """
        self.state = "shutting-down"
        if self.end_points:
            await self.controlled_shutdown.run(self.config, together_with)
        self.server.stop_listening()
        self.housekeeping.stop()
        self.fetchers.stop()
        self.link.close()
        self.marker_peers.close()
        self.verification_peers.close()
        await self.controller.stop()
        self.replicas.stop_all()
        self.purgatory.expire_all()
        self.server.close_connections()
        await self.tasks.cancel_all()
        if self.store_comparison is not None:
            await self.store_comparison.last()
        closed = self._world.loop.create_future()
        self.logs.close(lambda: closed.set_result(None))
        await closed
        await self._world.store.close()
        self.state = "stopped"

    async def _load_security(self) -> None:
        """Read delegation tokens and ACLs: no client is served by other rules than those stored."""
        self.tls.open(self.config)
        sources = SaslSources(self.scram_credentials)
        if self.delegation_tokens is not None:
            await self.lifecycle.persist(self.delegation_tokens.load)
            sources = sources._replace(tokens=self.delegation_tokens.credential)
        for listener in listeners_with(self.config, OAUTHBEARER):
            from odradek.broker.wiring.bearer_tokens import bearer_validator  # noqa: PLC0415 - urllib

            validate = await bearer_validator(self.config, listener, self._world, self.tasks)
            sources = sources._replace(bearer={**sources.bearer, listener: validate})
        decoys = b""
        if uses_scram(self.config):
            decoys = await self.lifecycle.persist(lambda: decoy_secret(self._world.store))
        open_sasl(self.config, self.authentication, self.server, sources, decoy_secret=decoys)
        if self.acl_changes is not None:
            await load_acls(self.config, self.acl_changes, self.lifecycle)

    def _log_strays(self) -> None:
        for path, directory in self.logs.directories.items():
            if directory.strays:
                log.info(
                    "%d logs in %s are set aside (their names end in -stray): nothing reads them; "
                    "delete them when their records are not needed",
                    directory.strays,
                    path,
                )

    async def _listen(self) -> tuple[EndPoint, ...]:
        """Open every listener. Returns the advertised end points, with the actual ports."""
        ports = {point.listener: await self.server.listen(point) for point in self.config.listeners}
        return tuple(
            replace(point, port=point.port or ports[point.listener])
            for point in self.config.advertised_listeners
        )


def _warn_of_options(config: BrokerConfig) -> None:
    for name in config.unknown():
        advice = former_option(name)
        if advice is not None:
            log.warning("%s is an option of former Kafkas, and has no effect: %s", name, advice)
        else:
            log.warning("%s is not an option of Kafka: it has no effect", name)
    for name in config.without_effect():
        log.warning("%s is set, and has no effect here", name)
