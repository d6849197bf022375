"""Real brokers for the tests of this folder, none of which outlives its test.

The folder is on the import path: its modules (brokers, peers, frames, attack) are shared with
`bench/fuzz.py` without being a package of the product.
"""

import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))

from brokers import BrokerProcess


@pytest.fixture
def make_broker(tmp_path: pathlib.Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Brokers with these options, by name, each in a directory of its own; not started yet."""
    made: list[BrokerProcess] = []

    def make(options: Mapping[str, object] | None = None, *, name: str = "broker") -> BrokerProcess:
        made.append(BrokerProcess(tmp_path / name, options))
        return made[-1]

    yield make
    for broker in made:
        broker.kill()
