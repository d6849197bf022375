"""Open files are shared between logs and connections, and some stay free."""

import pytest

from odradek.broker.open_files import shares


@pytest.mark.parametrize(
    ("limit", "logs", "connections"),
    [(128, 64, 32), (1_024, 512, 448), (20_000, 10_000, 9_488), (1 << 20, 50_000, 998_064)],
)
def test_the_shares_of_a_limit(limit, logs, connections):
    assert shares(limit) == (logs, connections)
    assert logs + connections < limit
