"""Apache Kafka 3.9 with TLS, client certificates and SASL, and the files of its clients."""

import pathlib
import subprocess
import sys

import apache
import pytest

trustme = pytest.importorskip("trustme")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")

PACKAGE = "org.apache.kafka.common.security"
PLAIN = f'{PACKAGE}.plain.PlainLoginModule required username="{{}}" password="{{}}";'
SCRAM = f'{PACKAGE}.scram.ScramLoginModule required username="{{}}" password="{{}}";'
USER, PASSWORD = "alice", "a,=b c"


class Secured:
    """A broker with a listener for each protocol, and the files that its clients need."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self.authority = trustme.CA()
        self.files = {
            "ca": self._write("ca.pem", self.authority.cert_pem.bytes()),
            "key": self._key("client", self.authority.issue_cert("client@example.org")),
            "other": self._write("other.pem", trustme.CA().cert_pem.bytes()),
        }
        server = self._key("server", self.authority.issue_cert("127.0.0.1"))
        self.ports = {name: apache.free_port() for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
        plain = f'{PLAIN.format("admin", "x")[:-1]} user_{USER}="{PASSWORD}";'
        listeners = [f"{name}://{apache.HOST}:{port}" for name, port in self.ports.items()]
        options = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": server,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.files["ca"],
            "listener.name.ssl.ssl.client.auth": "required",
            "connections.max.reauth.ms": "3000",
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            options[f"listener.name.{name}.plain.sasl.jaas.config"] = plain
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                module = f"{PACKAGE}.scram.ScramLoginModule required;"
                options[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = module
        self.zookeeper = apache.ZooKeeper(home / "zookeeper")
        try:
            self.broker = apache.Broker(
                home / "broker",
                self.zookeeper.address,
                properties=options,
                listeners=listeners,
            )
            self.broker.wait()
            self._add_user()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if hasattr(self, "broker"):
            self.broker.stop()
        self.zookeeper.stop()

    def _write(self, name: str, data: bytes) -> str:
        file = self.home / name
        file.write_bytes(data)
        return str(file)

    def _key(self, name: str, issued) -> str:
        """Java reads keys as PKCS#8 alone."""
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        self.key, self.chain = key, issued.cert_chain_pems
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return self._write(f"{name}.pem", pem + b"".join(c.bytes() for c in self.chain))

    def _add_user(self) -> None:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "odradek", "configs"),
                *("--bootstrap-server", self.broker.address, "--alter"),
                *("--entity-type", "users", "--entity-name", USER, "--add-config"),
                (
                    f"SCRAM-SHA-256=[password={PASSWORD.replace(',', '')}],"
                    f"SCRAM-SHA-512=[password={PASSWORD.replace(',', '')}]"
                ),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def scram_password() -> str:
    return PASSWORD.replace(",", "")
