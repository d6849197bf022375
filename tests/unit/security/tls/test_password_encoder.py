"""Passwords in the form in which Kafka stores them."""

import itertools

import pytest

from odradek.security.tls.password_encoder import PasswordEncoder
from odradek.security.tls.stores import TlsError

pytest.importorskip("cryptography")


# Stored by Apache Kafka 3.9.2: kafka-configs --zookeeper ... password.encoder.secret=enc-secret
STORED_BY_KAFKA = (
    "initializationVector:zbMvc4hq/XzHjnSZei/5Tg==,"
    "keyLength:128,"
    "salt:ZcihZWyDVr+MMGXUwif/rkOo7CL5qqPQzoD4wa8kas2b7nAi/iZTRCxr4/cWARZZGfXGTUPwAZnVAzURaaf"
    "JFrVAk52EeB2guSDaCZh8m7ub/vPS3dg+EoQ78evmnYbQJvOCnxmbf8h4cMiK3QfP061zWWVRJElElaB2oVqAKWU"
    "ivy3jDWoKbrFaV+jISrUgxNCbIyPGDYKPRDdcqxvMAkNwjv0ziIEwAAcqn6DKdC9RHPR2KMnKEuxlEtM4LsDqHCt"
    "tTBXrNU0kRLLCxSazCXS+t4AeFjlG1PF8qywkFpAe0xaYl/A8kNUocUb8uug/A93AJ1jbjmHKZ91PrPDAWA==,"
    "keyFactoryAlgorithm:PBKDF2WithHmacSHA512,"
    "cipherAlgorithm:AES/CBC/PKCS5Padding,"
    "iterations:4096,"
    "passwordLength:10,"
    "encryptedPassword:FIbF/ZYF6dvTyEtzU+juKQ=="
)


def encoder(secret="secret", former=None):
    numbers = itertools.count()
    return PasswordEncoder(
        secret, former, draw=lambda size: bytes(next(numbers) % 256 for _ in range(size))
    )


@pytest.mark.parametrize("password", ["", "x", "0123456789abcdef", "p:a,s=s wörd \U0001f600"[:14]])
def test_what_is_encoded_is_decoded(password):
    stored = encoder().encode(password)
    assert encoder().decode(stored) == password
    assert password not in stored or not password or len(password) == 1
    fields = dict(part.split(":", 1) for part in stored.split(","))
    assert fields["keyFactoryAlgorithm"] == "PBKDF2WithHmacSHA512"
    assert fields["cipherAlgorithm"] == "AES/CBC/PKCS5Padding"
    assert fields["iterations"] == "4096"
    assert fields["passwordLength"] == str(len(password))


def test_a_former_secret_still_decodes():
    stored = encoder("old").encode("password")
    assert encoder("new", "old").decode(stored) == "password"
    with pytest.raises(TlsError, match="is not the secret"):
        encoder("new").decode(stored)


def test_a_password_of_the_former_secret_is_encoded_again_and_another_is_not():
    both = encoder("new", "old")
    again = both.reencoded(encoder("old").encode("password"))
    assert encoder("new").decode(again) == "password"
    assert both.reencoded(again) is None
    with pytest.raises(TlsError, match="is not the secret"):
        both.reencoded(encoder("third").encode("password"))


@pytest.mark.parametrize(
    "change",
    [
        ("AES/CBC", "AES/GCM"),
        ("SHA512", "MD5"),
        ("iterations:4096", "iterations:2000000000"),
        ("iterations:4096", "iterations:0"),
        ("salt:", "pepper:"),
        ("encryptedPassword:", "encryptedPassword:*"),
    ],
)
def test_other_forms_are_refused(change):
    with pytest.raises(TlsError):
        encoder().decode(encoder().encode("password").replace(*change))


def test_text_that_is_no_encoded_password_is_refused():
    for text in ("", "password", "a:b"):
        with pytest.raises(TlsError, match="not a password in the form"):
            encoder().decode(text)


def test_what_kafka_has_stored_is_decoded():
    assert encoder("enc-secret").decode(STORED_BY_KAFKA) == "key-secret"
