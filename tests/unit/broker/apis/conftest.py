"""Tests of Produce run on each of its paths."""

import pytest

from odradek.broker.apis import usual_produce
from odradek.record.one_batch import fastest_read, plain_read_one_batch

# How a usual request is read: by the compiled kernel, by plain code, or by the general path only.
READERS = {
    "compiled": fastest_read,
    "plain": lambda: plain_read_one_batch,
    "general": lambda: lambda _frame: None,
}
TESTS_OF_PRODUCE = {
    "test_gathering",
    "test_produce",
    "test_produce_first_sequence",
    "test_produce_flush",
    "test_produce_worker",
}


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__.rpartition(".")[2] in TESTS_OF_PRODUCE:
        metafunc.parametrize("produce_path", READERS, indirect=True)


@pytest.fixture(autouse=True)  # pytest sets up a fixture that no test names only so
def produce_path(request, monkeypatch):
    if hasattr(request, "param"):
        monkeypatch.setattr(usual_produce, "fastest_read", READERS[request.param])
