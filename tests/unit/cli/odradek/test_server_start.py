"""`server-start`: what it makes of a properties file before the broker runs."""

import pytest

import odradek.broker.main
from odradek.cli.main import run

FILE = "org.apache.kafka.common.config.provider.FileConfigProvider"


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Starts with a file of these lines, and returns the properties that the broker gets."""
    got = []
    monkeypatch.setattr(odradek.broker.main, "run", lambda given, *_, **__: got.append(given) or 0)
    (tmp_path / "secrets.properties").write_text("rack=zone b\n")
    file = tmp_path / "server.properties"

    def start(*lines, override=()):
        secrets = f"{tmp_path}/secrets.properties"
        file.write_text("\n".join(lines).replace("SECRETS", secrets))
        words = [word for each in override for word in ("--override", each)]
        code = run(["server-start", str(file), *words])
        return code, got[0] if got else None

    return start


CONFIGURED = ("config.providers=file", f"config.providers.file.class={FILE}")


def test_a_broker_gets_the_values_of_its_config_providers(started):
    lines = (*CONFIGURED, "broker.rack=${file:SECRETS:rack}", "broker.id=1")
    assert started(*lines) == (0, {"broker.rack": "zone b", "broker.id": "1"})


def test_an_override_may_be_a_variable_too(started):
    lines = (*CONFIGURED, "broker.rack=a")
    override = ["broker.rack=<${file:/dev/null:none}>"]
    assert started(*lines, override=override) == (1, None)


def test_a_value_that_does_not_exist_is_named_and_no_broker_starts(started, capsys):
    assert started(*CONFIGURED, "broker.rack=${file:SECRETS:zone}") == (1, None)
    printed = capsys.readouterr().err
    assert "server.properties: broker.rack: ${file:" in printed
    assert "secrets.properties has no property 'zone'" in printed


def test_a_variable_without_a_provider_stays_and_is_reported(started, capsys):
    assert started("broker.rack=${file:a:b}") == (0, {"broker.rack": "${file:a:b}"})
    assert "broker.rack: no config provider has this name" in capsys.readouterr().err
