"""`odradek user`, `allow`, `deny`, `revoke` and `permissions`, through a broker and without one.

The cluster is in the clear: what the commands do is the same. tests/cluster/test_secure.py has a
secure one.
"""

import contextlib
import io
import pathlib

import pytest

from odradek.cli.main import run
from odradek.local.client_files import ClientFiles, SaslUser


def odradek(*arguments, expect=0):
    """Run a command in this process. Returns what it prints on stdout and on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    assert code == expect, (arguments, out.getvalue(), err.getvalue())
    return out.getvalue().splitlines(), err.getvalue()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    path = tmp_path_factory.mktemp("access") / "D"
    options = (
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:ANONYMOUS",
    )
    odradek("up", "--detach", "--dir", path, "--", *options)
    yield path
    odradek("down", "--dir", path)


@pytest.fixture(params=["through the broker", "in the store"])
def path(request, cluster):
    """The directory of a cluster that runs, or that does not."""
    if request.param == "in the store":
        odradek("down", "--dir", cluster)
    yield cluster
    if request.param == "in the store":
        odradek("up", "--detach", "--dir", cluster)


def test_a_user_is_added_listed_rotated_and_removed(path, tmp_path):
    files = ClientFiles(tmp_path / "clients")
    where = ("--dir", path, "--clients", files.folder)

    out, err = odradek("user", "add", "kim", *where)
    assert out == ["user kim may connect, and has no permission yet: odradek allow kim ..."]
    assert str(files.java("kim")) in err
    first = files.login("kim")
    assert isinstance(first, SaslUser)
    assert first.mechanism == "SCRAM-SHA-512"
    assert "user kim exists" in odradek("user", "add", "kim", *where, expect=1)[1]
    assert odradek("user", "list", "--dir", path)[0] == ["kim                      SCRAM-SHA-512"]

    odradek("user", "rotate", "kim", *where)
    assert files.login("kim").password != first.password

    password = pathlib.Path(tmp_path, "password")
    password.write_text("chosen by hand\n")
    odradek("user", "rotate", "kim", *where, "--password-file", password)
    assert files.login("kim").password == "chosen by hand"

    odradek("allow", "kim", "read", "topic", "orders", "--dir", path)
    out, err = odradek("user", "remove", "kim", *where)
    assert out == ["user kim is removed; open connections stay open until they end"]
    assert "1 ACLs still name User:kim" in err
    assert files.users() == []
    odradek("revoke", "kim", "read", "topic", "orders", "--dir", path)
    assert odradek("user", "list", "--dir", path)[0] == []
    for verb in ("rotate", "remove"):
        assert "there is no user kim" in odradek("user", verb, "kim", *where, expect=1)[1]


def test_permissions_are_given_listed_and_taken_back(path):
    where = ("--dir", path)
    out, err = odradek("allow", "app", "read,write", "topic", "orders", "--group", "g*", *where)
    assert out[:5] == [
        "User:app from now on:",
        "    may read Topic orders (Read, which includes Describe)",
        "    may write to Topic orders (Write, which includes Describe)",
        (
            "    may join, and commit offsets of, each Group whose name begins with g (Read, which "
            "includes Describe)"
        ),
        "the same with Kafka's tool:",
    ]
    assert len(out) == 7
    assert err == ""
    odradek("deny", "app", "write", "topic", "orders", "--host", "10.0.0.7", *where)

    listed, _ = odradek("permissions", "--principal", "app", *where)
    assert listed[:-1] == [
        "User:app",
        "    may read Topic orders (Read, which includes Describe)",
        "    may write to Topic orders (Write, which includes Describe)",
        out[3],
        "    may not write to Topic orders (Write), from host 10.0.0.7 only",
    ]
    assert listed[-1].endswith("--list --principal User:app")

    odradek("revoke", "app", "write", "topic", "orders", "--host", "10.0.0.7", *where)
    odradek("revoke", "app", "read,write", "topic", "orders", "--group", "g*", *where)
    listed, _ = odradek("permissions", *where)
    assert listed[:-1] == [
        "User:ANONYMOUS may do everything (super.users)", "there are no ACLs",
    ]  # fmt: skip
    assert (
        "there is no such permission"
        in odradek("revoke", "app", "read", "topic", "orders", *where, expect=1)[1]
    )


def test_the_printed_command_adds_the_same_acl(cluster):
    bootstrap = odradek("status", "--dir", cluster)[0][-1].split()[-1]
    out, err = odradek("allow", "app", "read", "topic", "orders-*", "--dir", cluster)
    assert "a consumer in a group needs Read on its group" in err
    odradek("revoke", "app", "read", "topic", "orders-*", "--dir", cluster)

    tool, *arguments = out[-1].split()
    odradek(tool.removeprefix("kafka-"), *arguments)
    assert f"--bootstrap-server {bootstrap}" in out[-1]
    listed, _ = odradek("permissions", "--principal", "app", "--dir", cluster)
    assert listed[1] == out[1]
    odradek("revoke", "app", "read", "topic", "orders-*", "--dir", cluster)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("allow", "app", "reed", "topic", "t"), "the operations on a topic are read, write"),
        (("allow", "app", "read", "topic"), "topic: its name is missing"),
        (("deny", "app", "read", "table", "t"), "'table' is not one of 'topic'"),
        (("user", "add", "../x"), "the name of a user"),
    ],
)
def test_what_cannot_be_meant_is_refused(cluster, arguments, complaint):
    assert complaint in odradek(*arguments, "--dir", cluster, expect=1)[1]


def test_without_an_authorizer_the_listing_says_so_and_nothing_is_granted(tmp_path):
    path = tmp_path / "D"
    odradek("up", "--detach", "--dir", path)
    try:
        listed, _ = odradek("permissions", "--dir", path)
        refused = odradek("allow", "app", "read", "topic", "t", "--dir", path, expect=1)[1]
    finally:
        odradek("down", "--dir", path)
    assert listed == ["every client may do everything, because authorizer.class.name is not set"]
    assert "authorizer.class.name is not set: odradek up --secure sets it" in refused
