"""Which log directories are older than the coordination store."""

import pytest

from odradek.broker.cluster.store_age import older_directories


@pytest.mark.parametrize(
    ("begun", "stored", "older"),
    [
        pytest.param({"/a": 7, "/b": 7}, 7, (), id="as they were left"),
        pytest.param({"/a": 8, "/b": 8}, 7, (), id="killed before the store had the count"),
        pytest.param({"/a": 8, "/b": 7}, 7, (), id="killed between two directories"),
        pytest.param({"/a": 3, "/b": 3}, 7, ("/a", "/b"), id="all are put back"),
        pytest.param({"/a": 7, "/b": 3}, 7, ("/b",), id="one is put back"),
        pytest.param({"/a": -1, "/b": 7}, 7, (), id="one is new, or of an earlier version"),
        pytest.param({"/a": 0}, 0, (), id="the first start"),
    ],
)
def test_a_directory_whose_counter_is_below_the_stored_one_is_an_older_copy(begun, stored, older):
    assert older_directories(begun, stored) == older
