"""A broker whose only users are those that were stored before it ran for the first time."""

import json
import subprocess
import sys

PACKAGE = "org.apache.kafka.common.security"
SCRAM = f'{PACKAGE}.scram.ScramLoginModule required username="admin" password="admin-secret";'


def test_the_first_user_of_a_new_cluster_logs_in(make_broker, tmp_path):
    """Brokers log in to each other as this user, too: no listener lets in other users."""
    store = tmp_path / "coordination.db"
    credential = "SCRAM-SHA-256=[iterations=8192,password=admin-secret]"
    user = ["--entity-type", "users", "--entity-name", "admin"]
    words = ["--zookeeper", str(store), "--alter", "--add-config", credential, *user]
    assert tool("configs", words).returncode == 0
    allow = ["--add", "--allow-principal", "User:app", "--operation", "Read", "--topic", "t"]
    words = ["--authorizer-properties", f"zookeeper.connect={store}", *allow]
    assert tool("acls", words).returncode == 0
    options = {
        "listeners": "SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SECURE",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.secure.scram-sha-256.sasl.jaas.config": SCRAM,
        "odradek.store.path": store,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
    }
    brokers = [make_broker({"broker.id": n, **options}, name=f"broker-{n}").start() for n in (1, 2)]
    config = tmp_path / "admin.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={SCRAM}\n"
    )
    where = ["--bootstrap-server", f"127.0.0.1:{brokers[0].port}", "--command-config", str(config)]
    created = tool("topics", [*where, "--create", "--topic", "t", "--replication-factor", "2"])
    acls = tool("acls", [*where, "--list"])

    assert created.returncode == 0, created.stdout + created.stderr
    assert "principal=User:app, host=*, operation=READ" in acls.stdout
    assert [broker.traces() for broker in brokers] == [[], []]
    assert "admin-secret" not in json.dumps([broker.output() for broker in brokers])


def tool(name, words):
    return subprocess.run(
        [sys.executable, "-m", "odradek", name, *words],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
