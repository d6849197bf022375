"""The project's rules for its tests."""

import ast
import pathlib
from collections.abc import Iterator

from tests.test_tidy import TESTS, asserts_under_if, parsed, private_patches

# All other tests run in simulated time, where a sleep takes none.
REAL_TIME = {"clients", "cluster", "oracle", "recorded", "spark", "hanging.py"}
# In a loop, to look for a condition again.
POLLING_SECONDS = 0.1
# Functions that sleep until no condition that can be seen, and why.
SLEEPS = {
    "clients/clusters/test_chaos.py:run": "the moment of a fault is drawn",
    "clients/clusters/test_chaos.py:_kill": "the moment of a fault is drawn",
    "clients/clusters/test_chaos.py:_kill_two": "the moment of a fault is drawn",
    "clients/clusters/test_chaos.py:_pause": "the moment of a fault is drawn",
    "clients/clusters/test_chaos.py:_restart_zookeeper": "the moment of a fault is drawn",
    "clients/spark/test_spark_chaos.py:test_every_row_is_written_once_with_any_kill": (
        "the moment of a kill is drawn"
    ),
    "cluster/test_kill.py:test_acknowledged_records_survive_kill_9_and_damage_is_contained": (
        "the moment of a kill is drawn"
    ),
    "cluster/test_kill.py:test_a_broker_that_is_killed_while_it_recovers_recovers_at_the_next_start": (  # noqa: E501
        "the broker is killed at some moment of its recovery, which shows nothing outside"
    ),
    "clients/test_java_groups.py:beat": "a member sends a heartbeat every second",
    "clients/test_our_client_secured.py:main": "a session has to grow older than its limit",
    "unit/testkit/simulation/test_patches.py:sleeper": "it sleeps in simulated time",
    "hanging.py:_again": "a pause between two requests, in the loops of its callers",
}


def sleeps(
    path: pathlib.Path, node: ast.AST, function: str = "", *, is_in_loop: bool = False
) -> Iterator[str]:
    """Functions that sleep in real time, but for those that poll."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            function, is_in_loop = name, False
        case ast.While() | ast.For() | ast.AsyncFor():
            is_in_loop = True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr="sleep"), args=[seconds]):
            is_short = isinstance(seconds, ast.Constant) and seconds.value <= POLLING_SECONDS
            is_polling = is_short and (is_in_loop or seconds.value == 0)
            is_real = module == "time" or path.parts[0] in REAL_TIME
            if is_real and not is_polling:
                yield f"{path}:{function}"
    for child in ast.iter_child_nodes(node):
        yield from sleeps(path, child, function, is_in_loop=is_in_loop)


def test_no_test_sleeps_where_it_can_wait_for_a_condition() -> None:
    found = {each for path, _, tree in parsed(TESTS) for each in sleeps(path, tree)}
    assert found == set(SLEEPS)


def test_no_assertion_stands_under_an_if() -> None:
    assert asserts_under_if() == []


def test_no_test_sets_a_private_name_of_something_else() -> None:
    assert private_patches() == []
