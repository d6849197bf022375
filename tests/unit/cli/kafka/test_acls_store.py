"""`kafka-acls` on a coordination store, without a broker."""

import asyncio

import pytest

from odradek.cli.kafka.tool import run_tool
from odradek.coord.layout_security import ACL_CHANGES
from odradek.coord.sqlite import SqliteStore
from odradek.net.clock import RealClock

CLASS = "kafka.security.authorizer.AclAuthorizer"


@pytest.fixture
def where(tmp_path):
    """The words that name a store."""

    async def make():
        store = SqliteStore(str(tmp_path / "coordination.db"), clock=RealClock())
        await store.open()
        await store.create(ACL_CHANGES)
        await store.close()

    asyncio.run(make())
    return ["--authorizer-properties", f"zookeeper.connect={tmp_path}"]


def test_acls_are_stored_listed_and_removed(where, capsys):
    add = ["--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t"]
    assert run_tool("acls", [*where, *add]) == 0
    text = capsys.readouterr()
    assert text.out.startswith("Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, ")
    assert text.err.startswith("Warning: support for ACL configuration directly through the")

    assert run_tool("acls", [*where, "--list", "--authorizer", CLASS]) == 0
    lines = "(principal=User:a, host=*, operation=READ, permissionType=ALLOW)"
    assert lines in capsys.readouterr().out

    assert run_tool("acls", [*where, "--remove", "--topic", "t", "--force"]) == 0
    capsys.readouterr()
    assert run_tool("acls", [*where, "--list"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--list"], 'Missing required argument "[authorizer-properties]"'),
        (["--authorizer", "a.B", "--bootstrap-server", "h:1", "--list"],
         "Only one of --bootstrap-server or --authorizer must be specified"),
        (["--authorizer-properties", "foo=bar", "--bootstrap-server", "h:1", "--list"],
         "The --authorizer-properties option can only be used with --authorizer option"),
        (["--authorizer-properties", "foo=bar", "--command-config", "x", "--list"],
         "The --command-config option can only be used with --bootstrap-server option"),
        (["--authorizer-properties", "foo=bar", "--list"],
         "Missing required configuration `zookeeper.connect` which has no default value."),
        (["--authorizer-properties", "foo", "--list"], "Missing value for key foo}"),
        (["--authorizer-properties", "foo=bar", "--authorizer", "a.B", "--list"],
         "Error while executing ACL command: a.B"),
    ],
)  # fmt: skip
def test_errors_have_kafkas_wording(words, complaint, capsys):
    assert run_tool("acls", words) == 1

    text = capsys.readouterr()
    assert complaint in text.out + text.err
