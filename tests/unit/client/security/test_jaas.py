"""User name and password in `sasl.jaas.config`."""

import pytest

from odradek.client.security.jaas import credentials
from odradek.client.settings import SettingsError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_user_and_password():
    assert credentials(f'{PLAIN} required username="alice" password="";') == ("alice", "", False)
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert credentials(f"{scram} REQUIRED username=a password=b;") == ("a", "b", False)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (None, "sasl.jaas.config must be set"),
        ("", "must be a login module, a flag"),
        (f"{PLAIN} always username=a password=b;", "must be a login module, a flag"),
        (f"{PLAIN} required username=a password=hunter2", "the final semicolon"),
        (f"{PLAIN} required username=a password=hunter2; more", "the final semicolon"),
        (f"{PLAIN} required username a;", "after 0 options"),
        (f'{PLAIN} required username="a password=hunter2;', "a quote is not closed"),
        (f"{PLAIN} required username=a;", "option password is missing"),
        ("com.sun.Krb5LoginModule required username=a password=hunter2;", "this client has Plain"),
    ],
)
def test_invalid_jaas_is_refused_without_the_password_in_the_error(line, complaint):
    with pytest.raises(SettingsError, match=complaint) as raised:
        credentials(line)
    assert "hunter2" not in str(raised.value)
