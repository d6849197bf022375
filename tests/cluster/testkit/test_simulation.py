"""Simulations as users ask for them: by pytest and by a function, in child processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.testkit import simulated_shop

from odradek.testkit.simulation import simulate

# Written to a folder of its own; it uses no Kafka client, so that it is quick.
PROGRAM = """
import asyncio
from odradek.testkit.simulation import kafka_simulation, kill

async def bank(context):
    async def serve(reader, writer):
        while line := await reader.readline():
            context.outside.booked.append(line.decode().strip())
            writer.write(b"ok\\n")
        writer.close()
    async with await asyncio.start_server(serve, port=1) as server:
        await server.serve_forever()

async def shop(context, repeats):
    for number in range(20):
        while True:
            try:
                reader, writer = await asyncio.open_connection("bank", 1)
                writer.write(b"%d\\n" % number)
                answered = await reader.readline()
            except OSError:
                answered = b""
            if answered or not repeats:
                break
            await asyncio.sleep(0.2)
        context.outside.sent.append(str(number))
        await asyncio.sleep(0.1)

def plan(sim, repeats):
    sim.service("bank", bank)
    sim.process("shop", shop, repeats, when_it_ends="stay")
    sim.settle(quiet=2.0)
    sim.faults("connections reset")
    sim.at(1.05, kill("bank", restart_after=0.5))
    sim.at_end(lambda world: world.assert_none_lost(
        sent=world.outside.sent, got=world.outside.booked))

@kafka_simulation(seeds=3, brokers=1, minutes=0.05)
def test_sound(sim, tmp_path):
    assert tmp_path.is_dir()
    plan(sim, repeats=True)

@kafka_simulation(seeds=3, brokers=1, minutes=0.05)
def test_mistaken(sim):
    plan(sim, repeats=False)

def test_by_the_fixture(kafka_simulation):
    kafka_simulation(lambda sim: plan(sim, True), seeds=2, brokers=1, minutes=0.05)
    kafka_simulation(lambda sim: plan(sim, True), seeds=1, brokers=1, minutes=0.05)
"""


def pytest_on(folder, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", "--kafka-jobs=2", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.stdout + ended.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "test_bank.py").write_text(PROGRAM)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_a_failing_seed_is_printed_with_its_command_and_tried_first_the_next_time(folder):
    output = pytest_on(folder, "test_bank.py")
    assert "1 failed, 2 passed" in output
    assert "test_mistaken fails with seed 0 (1 seeds tried" in output
    assert "of 20 lost: '" in output
    assert "No fault is needed for it." in output
    again = "pytest test_bank.py::test_mistaken --kafka-seed 0:"
    assert again in output

    output = pytest_on(folder, "test_bank.py::test_mistaken", "--kafka-seeds", "1")
    assert "test_mistaken fails with seed 0 (1 seeds tried" in output
    assert f"Again:  {again}" in output

    output = pytest_on(folder, "test_bank.py::test_mistaken", "--kafka-seed", "2")
    assert "test_mistaken fails with seed 2" in output


def test_a_test_that_cannot_be_set_up_says_why(folder):
    (folder / "test_bank.py").write_text(
        PROGRAM.replace('sim.service("bank", bank)', 'sim.topic("t", replicas=9)')
    )
    output = pytest_on(folder, "test_bank.py::test_sound")
    assert "topic 't' cannot have 9 replicas: there are 1 brokers" in output
    (folder / "test_bank.py").write_text(
        PROGRAM.replace("async def bank", "import nothing_such\n\nasync def bank")
    )
    assert "No module named 'nothing_such'" in pytest_on(folder, "test_bank.py")


def test_a_lost_order_is_found_and_made_small():
    """An unmodified aiokafka program that commits before it has processed a record."""
    found = simulate(simulated_shop.commits_first, seeds=[20], minutes=0.1, jobs=2)
    assert found.unlike == ""
    assert "lost: " in found.smallest.failures[0]
    assert 1 <= len(found.smallest.incidents) <= 3


def test_its_cure_loses_none():
    found = simulate(simulated_shop.commits_last, seeds=[19, 20], minutes=0.1, jobs=2)
    assert (found.seeds, found.failing, found.unlike) == (2, [], "")


def test_the_package_is_imported_when_it_is_used():
    code = "import odradek.testkit.simulation, sys; print('odradek.sim' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert printed.stdout.strip() == b"False"
    assert Path(simulated_shop.__file__).is_file()
