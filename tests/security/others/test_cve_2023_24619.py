"""CVE-2023-24619, CVE-2023-30450 (Redpanda): credentials were printed, and TLS was silently off
because its setting was misread.
"""

import pytest

from odradek.client.settings import ClientSettings, Security
from odradek.config.broker import BrokerConfig, ConfigConflictError, InvalidConfigError
from odradek.security.sasl.jaas import JaasError, parse_jaas


@pytest.mark.parametrize(
    "options",
    [
        {"listener.security.protocol.map": "A:SASLSSL", "listeners": "A://h:1"},
        {"listeners": "SECURE://h:1"},
        {"security.inter.broker.protocol": "SSLL"},
        {"ssl.client.auth": "require"},
        {"allow.everyone.if.no.acl.found": "yes"},
        {"odradek.sasl.oauthbearer.unsecured.tokens": "1"},
    ],
    ids=str,
)
def test_a_broker_refuses_a_value_that_it_does_not_know(options):
    with pytest.raises((InvalidConfigError, ConfigConflictError)):
        BrokerConfig({"broker.id": "1", **options}, host_name="h")


@pytest.mark.parametrize("protocol", ["SASL-SSL", "TLS", "", "SSL "])
def test_a_client_refuses_a_protocol_that_it_does_not_know(protocol):
    found = None
    try:
        found = ClientSettings.from_properties({"security.protocol": protocol}).security
    except InvalidConfigError:
        return
    assert found.uses_tls, "a value is never taken for PLAINTEXT"


def test_errors_and_representations_have_no_password():
    with pytest.raises(JaasError) as error:
        parse_jaas('x.PlainLoginModule required username="alice" password="hidden"')
    assert "hidden" not in str(error.value)
    security = Security(jaas_config='password="hidden"')
    assert "hidden" not in repr(security)
    assert "hidden" not in repr(ClientSettings(security=security))
