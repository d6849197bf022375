"""CVE-2026-33557: the default validator of bearer tokens accepted every token."""

import pytest
from tests.unit.broker.live import play
from tests.unit.broker.test_server import refused

from odradek.config.broker import BROKER_OPTIONS

OPTIONS = {
    "listeners": "PLAINTEXT://b0:9092,SECURE://b0:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sasl.oauthbearer.expected.audience": "kafka"},
        {"sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.DefaultJwtValidator"},
    ],
)
def test_without_keys_a_broker_does_not_start(options):
    async def story(live):
        reason = await refused(live, **OPTIONS, **options)
        assert "no keys that verify tokens" in reason

    play(story)


def test_tokens_without_a_signature_are_not_the_default():
    assert BROKER_OPTIONS["odradek.sasl.oauthbearer.unsecured.tokens"].default is False
