"""One login module in the syntax of JAAS."""

import pytest

from odradek.security.sasl.jaas import JaasError, LoginModule, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_options_in_quotes_and_bare():
    line = f"""{PLAIN} required\n username="al\\"ice" password='s e;c=ret' other=x ;"""

    assert parse_jaas(line) == LoginModule(
        PLAIN, {"username": 'al"ice', "password": "s e;c=ret", "other": "x"}
    )


def test_the_error_contains_no_password():
    with pytest.raises(JaasError) as raised:
        parse_jaas(f"{PLAIN} required username=a password=hunter2")
    assert "hunter2" not in str(raised.value)
