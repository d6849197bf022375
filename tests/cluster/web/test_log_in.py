"""The page of a secure cluster: each viewer is a user of it, with the rights of that user."""

import json
import subprocess
import sys

import pytest
from tests.served import TIMEOUT_S, ServedPage

from odradek.local.client_files import ClientFiles
from odradek.local.directory import ClusterDirectory

pytest.importorskip("odradek.local.certificates", reason="the extra `secure`")
ODRADEK = (sys.executable, "-m", "odradek")


def run(*arguments, code=0):
    done = subprocess.run(
        [*ODRADEK, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout + done.stderr


class SecurePage(ServedPage):
    """A cluster of one broker with the topics `open` and `hidden`, and its page with log-in."""

    def __init__(self, path):
        self.path = path
        self.files = ClientFiles(ClusterDirectory(path).clients)
        run("user", "add", "alice", "--dir", path)
        for topic in ("open", "hidden"):
            self.tool("topics", "--create", "--topic", topic)
        run("allow", "alice", "read,write", "topic", "open", "--dir", path)
        self.log = (path / "page.log").open("w")
        super().__init__(
            "--dir", path, "--write",
            log=self.log, authority=str(self.files.authority),
        )  # fmt: skip

    def tool(self, name, *arguments):
        bootstrap = json.loads(run("status", "--json", "--dir", self.path))["bootstrap"]
        config = ("--command-config", self.files.java("admin"))
        return run(name, "--bootstrap-server", bootstrap, *config, *arguments)

    def log_in(self, user):
        login = self.files.login(user)
        status, answer = self.ask("login", body={"user": user, "password": login.password})
        assert status == 200
        return answer["token"]

    def end(self):
        super().end()
        self.log.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("log-in") / "D"
    run("up", "--secure", "--detach", "--dir", path)
    try:
        found = SecurePage(path)
        try:
            yield found
        finally:
            found.end()
    finally:
        run("down", "--dir", path)


def names(view):
    return {topic["name"] for topic in view["topics"] if not topic["is_internal"]}


def test_nothing_is_shown_without_a_log_in_nor_with_a_wrong_password(page):
    assert page.url.startswith("https://")
    assert page.ask("topics")[0] == 401
    status, answer = page.ask("login", body={"user": "alice", "password": "wrong"})

    assert (status, answer["error"]) == (401, "the user or the password is wrong")


def test_a_user_sees_and_writes_what_the_authorizer_allows(page):
    admin, alice = page.log_in("admin"), page.log_in("alice")

    assert names(page.ask("topics", admin)[1]) == {"open", "hidden"}
    assert names(page.ask("topics", alice)[1]) == {"open"}
    message = {"topic": "hidden", "value": "v"}
    refused = page.ask("messages", alice, message)
    assert (refused[0], "TOPIC_AUTHORIZATION_FAILED" in refused[1]["error"]) == (400, True)
    assert page.ask("messages", alice, message | {"topic": "open"})[0] == 200
    assert page.ask("messages", admin, message)[0] == 200
    found = page.ask("messages?topic=open", alice)[1]["messages"]
    assert [each["value"]["text"] for each in found] == ["v"]
    granted = {"action": "allow", "principal": "alice", "operations": "read", "kind": "topic",
               "name": "later"}  # fmt: skip
    assert page.ask("access", alice, granted)[0] == 409
    status, answer = page.ask("access", admin, granted)
    assert (status, len(answer["commands"])) == (200, 1)
    assert "--add --allow-principal User:alice" in answer["commands"][0]["text"]
    assert "admin.properties" not in answer["commands"][0]
    revoked = page.ask("access", admin, granted | {"action": "revoke"})[1]
    assert revoked["says"].startswith("1 ACLs removed")
    assert page.ask("moves/clear-throttles", alice, {})[0] == 502
    lines = (page.path / "page.log").read_text()
    assert "127.0.0.1: user 'alice': POST /messages: 200" in lines
    assert "127.0.0.1: user 'admin': POST /messages: 200" in lines


@pytest.mark.parametrize(
    "view",
    ["", "topics", "topics/open", "topics/hidden", "brokers/0", "messages", "groups",
     "groups/none", "transactions", "moves", "timeline", "access", "stories"],
)  # fmt: skip
def test_every_view_is_there_for_a_user_with_few_rights(page, view):
    status, answer = page.ask(view, page.log_in("alice"))

    assert status == 200
    assert "Error:" not in json.dumps(answer)


def test_a_token_is_not_valid_after_the_log_out(page):
    token = page.log_in("alice")
    assert page.ask("topics", token)[0] == 200
    page.ask("logout", token, {})

    assert page.ask("topics", token)[0] == 401


def test_the_commands_of_a_view_name_no_file_of_the_administrator(page):
    answer = json.dumps(page.ask("moves/plan?kind=rebalance", page.log_in("admin"))[1])

    assert "admin.properties" not in answer


def test_the_administrators_eyes_are_for_all_only_if_that_is_said(page):
    assert page.ask("topics")[0] == 401
    open_page = ServedPage("--dir", page.path, "--no-log-in")
    try:
        assert open_page.ask("topics")[0] == 200
    finally:
        open_page.end()


def test_credentials_that_viewers_cannot_have_are_not_lent_to_all(tmp_path):
    server = ("--bootstrap-server", "127.0.0.1:1")
    for text in (
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n",
        "security.protocol=SSL\nssl.keystore.location=x.pem\nssl.keystore.type=PEM\n",
    ):
        file = tmp_path / "client.properties"
        file.write_text(text)
        assert "with --no-log-in everybody" in run("web", *server, "--command-config", file, code=1)


def test_without_a_log_in_it_is_not_for_other_hosts(tmp_path):
    said = run("web", "--bootstrap-server", "127.0.0.1:1", "--no-log-in", "--host", "::", code=1)
    assert "--no-log-in: everybody could use the page" in said


def test_a_page_for_other_hosts_is_refused_without_authentication_or_tls(tmp_path):
    plain = tmp_path / "plain.properties"
    plain.write_text("security.protocol=PLAINTEXT\n")
    scram = tmp_path / "scram.properties"
    scram.write_text("security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n")
    server = ("--bootstrap-server", "127.0.0.1:1", "--host", "0.0.0.0")

    said = run("web", *server, "--command-config", plain, code=1)
    assert "the cluster asks for no user" in said
    assert "ssh -L 8080:127.0.0.1:8080" in said
    said = run("web", *server, "--command-config", scram, code=1)
    assert "name --ssl-certfile" in said
    assert "ssh -L" in run("stories", "--host", "0.0.0.0", code=1)
