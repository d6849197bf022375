"""Quotas in the simulator: mistakes are switched on one by one, and a seed has to find each.

The checker counts for itself (odradek.sim.checks.quotas): more than the quota, throttled for no
reason, other limits than those that were set.
"""

import pytest

from odradek.broker.serving import client_quotas
from odradek.broker.serving.client_quotas import ClientQuotas
from odradek.broker.serving.request_loop import RequestLoop
from odradek.broker.wiring.config_changes import ConfigChanges
from odradek.quota import precedence
from odradek.quota.precedence import Share
from odradek.quota.usage import Usage
from odradek.sim.run.faults import Kind
from odradek.sim.run.simulation import Options, simulate
from odradek.wire.api_keys import ApiKey

SEED = 1
SEEDS_MAX = 10
KINDS = (Kind.RESET, Kind.KILL)
SHORT = Options(seconds=8.0, quotas=True, traits=frozenset(), kinds=KINDS)
LONG = Options(seconds=20.0, quotas=True, traits=frozenset(), kinds=KINDS)  # the logs become large
LARGE_BYTES = 64 << 10


def a_large_answer_is_not_counted_fully(monkeypatch):
    """As if a fetch had at most 64 KiB."""
    fetched = ClientQuotas.fetched
    monkeypatch.setattr(
        ClientQuotas,
        "fetched",
        lambda self, session, size: fetched(self, session, min(size, LARGE_BYTES)),
    )


def what_a_throttled_fetch_did_not_get_stays_counted(monkeypatch):
    """A client that asks for more than is left gets nothing for ever."""
    fetched = ClientQuotas.fetched

    def counted(self, session, size_bytes):
        throttle_ms = fetched(self, session, size_bytes)
        limit = client_quotas._limit(self._fetched, session) if self._fetched else None
        if throttle_ms and limit is not None:
            self._fetched.count(limit).rate.record(size_bytes, self._monotonic_ms())
        return throttle_ms

    monkeypatch.setattr(ClientQuotas, "fetched", counted)


def a_throttled_connection_is_not_muted(monkeypatch):
    """The client has the throttle time, and need not obey it (before KIP-219 it did not get it)."""
    monkeypatch.setattr(RequestLoop, "throttle", lambda *_: None)


def produce_and_fetch_take_no_time(monkeypatch):
    """The request quota holds for all other requests."""
    timed = ClientQuotas.timed

    def sorted_out(self, frame):
        with_time = timed(self, frame)

        def framed(connection, data):
            is_data_path = data[1] in (ApiKey.PRODUCE, ApiKey.FETCH)
            (frame if is_data_path else with_time)(connection, data)

        return framed

    monkeypatch.setattr(ClientQuotas, "timed", sorted_out)


def the_work_of_the_broker_counts_for_the_next_client(monkeypatch):
    """A client is throttled for what others have used."""
    monkeypatch.setattr(client_quotas, "AROUND_MAX", 10**9)


def a_changed_quota_holds_after_a_restart(monkeypatch):
    """A broker reads quotas when it starts, and ignores the notifications of changes."""
    apply = ConfigChanges.client_configs

    def applied(self, configs, *, whole):
        if whole:
            apply(self, configs, whole=True)

    monkeypatch.setattr(ConfigChanges, "client_configs", applied)


def the_default_precedes_the_limit_of_one_client(monkeypatch):
    """The eight levels are in the wrong order."""
    entities_of = precedence.entities_of
    monkeypatch.setattr(
        precedence, "entities_of", lambda user, client: reversed(list(entities_of(user, client)))
    )


def all_clients_use_one_share(monkeypatch):
    """A default limit is divided among its clients, instead of holding for each."""
    count = Usage.count
    monkeypatch.setattr(
        Usage, "count", lambda self, limit: count(self, limit._replace(share=Share("", "")))
    )


FOUND = [
    (a_large_answer_is_not_counted_fully, LONG, "more than its consumer_byte_rate"),
    (what_a_throttled_fetch_did_not_get_stays_counted, LONG, "throttles"),
    (a_throttled_connection_is_not_muted, SHORT, "more than its"),
    (produce_and_fetch_take_no_time, SHORT, "more than its request_percentage"),
    (the_work_of_the_broker_counts_for_the_next_client, SHORT, "throttles"),
    (a_changed_quota_holds_after_a_restart, SHORT, "has the quotas"),
    (the_default_precedes_the_limit_of_one_client, SHORT, "throttles"),
    (all_clients_use_one_share, SHORT, "throttles"),
]


@pytest.mark.parametrize(
    ("mistake", "options", "words"), FOUND, ids=[m.__name__ for m, *_ in FOUND]
)
def test_a_seed_finds(monkeypatch, mistake, options, words):
    mistake(monkeypatch)
    found = []
    for seed in range(SEED, SEED + SEEDS_MAX):
        found = simulate(seed, options).violations
        if found:
            break
    assert any(words in violation for violation in found), found


def test_nothing_is_found_without_a_mistake_and_clients_are_throttled():
    outcome = simulate(SEED, LONG)

    assert not outcome.violations, outcome.replay
    assert outcome.happened["throttled responses"] > 20
    assert outcome.happened["changed quotas"] > 5
    for option in ("producer_byte_rate", "consumer_byte_rate", "request_percentage"):
        assert outcome.happened[f"limited by {option}"] > 20


def test_nothing_is_found_on_three_brokers_with_all_faults():
    outcome = simulate(SEED, Options(brokers=3, seconds=15.0, quotas=True))

    assert not outcome.violations, outcome.replay
    assert outcome.happened["throttled responses"] > 20
