"""Open files are shared between logs and connections, and some stay free."""

import pytest

from odradek.broker.storage.open_files import shares


@pytest.mark.parametrize(
    ("limit", "logs", "connections"),
    [(128, 64, 1), (1_024, 512, 280), (20_000, 10_000, 9_768), (1 << 20, 50_000, 998_344)],
)
def test_the_shares_of_a_limit(limit, logs, connections):
    assert shares(limit, backlog=50) == (logs, connections)
    assert logs + connections < limit


def test_a_long_queue_of_connections_takes_no_files():
    assert shares(20_000, backlog=4_000) == shares(20_000, backlog=50)
