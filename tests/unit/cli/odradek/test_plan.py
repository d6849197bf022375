"""`odradek plan`: its output, and the command lines it refuses."""

import json

import pytest

from odradek.cli.main import run
from odradek.cli.odradek.plan import imagined, to_bytes
from odradek.plan.duration import Duration, duration_text
from odradek.plan.quantities import bytes_text

FIGURES = ["--target", "100MB/s", "--producer-rate", "10MB", "--consumer-rate", "25MB"]


@pytest.mark.parametrize(
    ("text", "number"),
    [("4096", 4096), ("50MB", 50e6), ("1.5GiB", 1.5 * (1 << 30)), ("10k", 1e4), ("2 MB/s", 2e6)],
)
def test_numbers_of_bytes(text, number):
    assert to_bytes(text) == number


def test_both_formulas_are_printed_with_the_reason(capsys):
    assert run(["plan", "partitions", *FIGURES, "--candidates", "10000", "--brokers", "30"]) == 0
    message = capsys.readouterr().out

    assert "target / Tp = 10" in message
    assert "target / Tc = 4" in message
    assert "Partitions: 10, the larger of the two." in message
    assert "The formula target / max(Tp, Tc) gives 4. It is a lower bound" in message
    assert "the slower side reaches 40.0 MB/s" in message
    assert "156.25 MiB" in message  # batch.size x 10,000
    assert "1500 MiB" in message  # fetch.max.bytes x 30 brokers
    assert "they are valid for the record size, acks and client of their measurement" in message
    assert "a group has work for at most 10 members, each of which reads 25.0 MB/s" in message


def test_an_assignment_is_planned_without_a_cluster_and_explained_number_by_number(capsys):
    arguments = ["--partitions", "10", "--start", "0", "--shift", "0", "--topic", "t"]
    assert run(["plan", "assignment", "--brokers", "5", *arguments]) == 0
    message = capsys.readouterr().out

    assert "leader (p + start) % n, follower j (leader + 1 + (shift + j) % (n - 1)) % n" in message
    assert "t-0: 0,1,2\n" in message
    assert (
        "t-5: 0,2,3\n    0 leads: place 0 of [0, 1, 2, 3, 4], for (5 + start 0) % 5 = 0\n"
        in message
    )
    assert "    2 follows: place (0 + 1 + (1 + 0) % (5 - 1)) % 5 = 2\n" in message
    table = [line.split() for line in message.splitlines()]
    assert ["broker", "rack", "leaders", "replicas", "leads", "follows"] in table
    assert ["0", "-", "2", "6", "0,5", "3,4,7,8"] in table


def test_brokers_that_do_not_exist_have_the_ids_and_racks_they_are_given():
    assert imagined("3", None) == {0: None, 1: None, 2: None}
    assert imagined("4,9", "A,B") == {4: "A", 9: "B"}
    assert imagined(None, "A,A,A,B,B,B") == dict(enumerate("AAABBB"))


def test_racks_are_served_without_a_cluster(capsys):
    arguments = ["--partitions", "6", "--replication-factor", "2", "--start", "0", "--shift", "0"]
    assert run(["plan", "assignment", "--racks", "A,A,A,B,B,B", *arguments]) == 0
    message = capsys.readouterr().out

    assert "new-topic-0: 0,3\n" in message
    assert "(0 + 1 + (0 x 2 racks + 0) % (6 - 1)) % 6 = 1; rack B is new" in message


def test_the_keys_of_a_file_are_spread(tmp_path, capsys):
    sample = tmp_path / "keys"
    sample.write_text("".join(f"key-{n % 50}\n" for n in range(1000)))
    arguments = ["--keys", str(sample), "--present", "5", "--json"]
    assert run(["plan", "partitions", *FIGURES, *arguments]) == 0
    printed = json.loads(capsys.readouterr().out)

    assert [spread["partitions"] for spread in printed["spreads"]] == [4, 5, 10]
    assert printed["spreads"][1]["moved"] == 0
    assert (printed["partitions"], printed["lower_bound"]) == (10, 4)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["partitions", "--target", "many"], "'many' is not a number of bytes"),
        (["partitions", "--target", "1MB"], "--bootstrap-server of a cluster"),
        (["partitions", "--target", "0", *FIGURES[2:]], "must be above 0"),
        (["partitions", "--target", "1MB", "--producer-rate", "0", "--consumer-rate", "1"],
         "must be above 0"),
        (["partitions", *FIGURES, "--candidates", "6,x"], "not a list of numbers such as 6,12,24"),
        (["partitions", *FIGURES, "--candidates", "0"], "begin with 1"),
        (["partitions", *FIGURES, "--keys-topic", "t"], "--keys-topic needs --bootstrap-server"),
        (["assignment", "--partitions", "1"], "give --brokers (5, or ids as 1,2,7)"),
        (["assignment", "--partitions", "1", "--brokers", "x"], "must be a number such as 5"),
        (["assignment", "--partitions", "1", "--brokers", "0"], "at least one, each id once"),
        (["assignment", "--partitions", "1", "--brokers", "2,2"], "each id once"),
        (["assignment", "--partitions", "1", "--brokers", "3", "--racks", "A"], "1 racks for 3"),
        (["assignment", "--partitions", "1", "--brokers", "2"], "Replication factor: 3 larger"),
        (["assignment", "--partitions", "1", "--brokers", "2", "--bootstrap-server", "h:1"],
         "--brokers and --racks do without one"),
        (["rebalance", "--dir", "/nowhere"], "there is no cluster in /nowhere"),
        (["rebalance", "--bootstrap-server", "127.0.0.1:1", "--throttle", "0"],
         "must be 1 byte a second or more"),
        (["drain", "--bootstrap-server", "127.0.0.1:1"], "Missing argument 'BROKERS...'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(arguments, complaint, capsys):
    assert run(["plan", *arguments]) == 1
    assert complaint in capsys.readouterr().err


def test_a_cluster_that_is_not_there_is_named(tmp_path, capsys):
    hasty = tmp_path / "hasty.properties"
    hasty.write_text("default.api.timeout.ms=150\nrequest.timeout.ms=100\n")
    where = ["--bootstrap-server", "127.0.0.1:1", "--command-config", str(hasty)]
    assert run(["doctor", *where]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_sizes_and_times_for_people():
    assert [bytes_text(n) for n in (5, 1500, 250_000, 3e9, 5e13)] == [
        "5 B", "1.5 kB", "250 kB", "3.0 GB", "50.0 TB",
    ]  # fmt: skip
    assert "about 1 h 1 min: broker 2" in duration_text(Duration(3660, 2, 10), 100)
    assert "It would never end" in duration_text(Duration(float("inf"), 2, 200), 100)
