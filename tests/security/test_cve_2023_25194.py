"""CVE-2023-25194, CVE-2025-27817, CVE-2025-27818, CVE-2025-27819, CVE-2024-31141.

Options named classes that were loaded, files that were read, URLs that were requested, and
variables of the environment that were put in.
"""

import pytest
from tests.unit.broker.live import play
from tests.unit.broker.test_server import refused

from odradek.broker.serving.bearer_keys import KeysError, read_url
from odradek.client.security.bearer import bearer_token
from odradek.client.security.jaas import credentials
from odradek.client.settings import ClientSettings, SettingsError
from odradek.config.broker import BrokerConfig
from odradek.config.option import InvalidConfigError
from odradek.config.providers import resolve
from odradek.net.config_sources import HostSources

JNDI = (
    "com.sun.security.auth.module.JndiLoginModule required "
    'user.provider.url="ldap://127.0.0.1/x" group.provider.url="ldap://127.0.0.1/x";'
)
LDAP = 'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://127.0.0.1/x";'


@pytest.mark.parametrize("module", [JNDI, LDAP])
def test_a_client_refuses_another_login_module(module):
    with pytest.raises(SettingsError, match="this client has PlainLoginModule and ScramLogin"):
        credentials(module)


@pytest.mark.parametrize("module", [JNDI, LDAP])
def test_so_does_a_broker(module):
    async def story(live):
        reason = await refused(
            live,
            **{
                "listeners": "PLAINTEXT://b0:9092,SECURE://b0:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.secure.plain.sasl.jaas.config": module,
            },
        )
        assert "cannot be used for PLAIN: use PlainLoginModule" in reason

    play(story)


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest", "ldap://x/y", "jar:file:///x!/y", "ftp://x/y"]
)
def test_keys_and_tokens_come_from_no_other_kind_of_url(url):
    with pytest.raises(KeysError, match="must be a file: or https: URL"):
        read_url(url)
    with pytest.raises(SettingsError, match="must be file:///PATH, where another"):
        bearer_token(url)


def test_a_file_without_a_token_is_not_sent_anywhere(tmp_path):
    file = tmp_path / "passwd"
    file.write_text("root:x:0:0:root:/root:/bin/bash\n")
    with pytest.raises(SettingsError) as error:
        bearer_token(file.as_uri())
    assert "root:x" not in str(error.value)


def test_no_variable_is_replaced_unless_its_provider_is_configured(monkeypatch):
    monkeypatch.setenv("SECRET", "hidden")
    for text in ("${env:SECRET}", "${file:/etc/passwd:root}", "${SECRET}", "$SECRET"):
        assert ClientSettings.from_properties({"client.id": text}).client_id == text
        config = BrokerConfig(resolve({"broker.rack": text}, HostSources()), host_name="h")
        assert config.broker_rack == text
        with pytest.raises(InvalidConfigError, match="config.providers.env.class"):
            ClientSettings.from_properties({"client.id": text, "config.providers": "env"})


def test_a_provider_reads_no_file_outside_of_its_paths(tmp_path):
    properties = {
        "config.providers": "file",
        "config.providers.file.class": "FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(tmp_path),
        "client.id": "${file:/etc/passwd:root}",
    }
    with pytest.raises(InvalidConfigError, match="/etc/passwd is not below allowed.paths"):
        ClientSettings.from_properties(properties)
