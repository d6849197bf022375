"""Config providers: what a variable stands for, and what is refused, with which words."""

from posixpath import normpath

import pytest

from odradek.config.option import InvalidConfigError
from odradek.config.providers import left, resolve

PACKAGE = "org.apache.kafka.common.config.provider."
CONFIGURED = {
    "config.providers": "file, env,dir",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
}


FILES = {
    "/etc/s.properties": b"rack=zone b\npass\\:word=a${env:ZONE}=\nempty=\n",
    "/etc/keys/key.pem": b"-----\nx\n",
    "/etc/latin.properties": b"a=\xe4",
    "/etc/broken.properties": rb"a=\u12",
    "s.properties": b"rack=here",
}


class Host:
    """Files and environment variables."""

    def text(self, path):
        if normpath(path) not in FILES:
            raise FileNotFoundError(2, "No such file or directory")
        return FILES[normpath(path)].decode()

    def variable(self, name):
        return {"ZONE": "z1", "EMPTY": ""}.get(name)


def found(text, **params):
    named = {f"config.providers.{k.replace('__', '.param.')}": v for k, v in params.items()}
    named = {k.replace("allowed_paths", "allowed.paths"): v for k, v in named.items()}
    named = {k.replace("allowlist_pattern", "allowlist.pattern"): v for k, v in named.items()}
    return resolve({**CONFIGURED, **named, "o": text}, Host())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${file:/etc/s.properties:rack}", "zone b"),
        ("${file:s.properties:rack}", "here"),
        ("<${env:ZONE}-${file:/etc/s.properties:rack}>", "<z1-zone b>"),
        ("${file:/etc/s.properties:empty}${env:EMPTY}", ""),
        ("${dir:/etc/keys:key.pem}", "-----\nx\n"),
        ("${dir:/etc/keys/:key.pem}", "-----\nx\n"),
        # The value is not searched for variables, and a key may contain a colon.
        ("${file:/etc/s.properties:pass:word}", "a${env:ZONE}="),
        ("${other:a:b} ${HOME} $$ ${", "${other:a:b} ${HOME} $$ ${"),
        ("plain", "plain"),
    ],
)
def test_a_variable_stands_for_what_its_provider_has(text, value):
    assert found(text) == {"o": value}


@pytest.mark.parametrize(
    ("text", "params", "words"),
    [
        ("${file:/etc/none:a}", {}, "o: ${file:/etc/none:a}: /etc/none: No such file or directory"),
        ("${file:/etc/s.properties:a}", {}, "/etc/s.properties has no property 'a'"),
        ("${file:rack}", {}, "must have the form ${file:FILE:KEY}"),
        ("${file:/etc/latin.properties:a}", {}, "/etc/latin.properties: must be UTF-8"),
        ("${file:/etc/broken.properties:a}", {}, "/etc/broken.properties: line 1"),
        ("${dir:/etc/keys:none}", {}, "/etc/keys/none: No such file or directory"),
        ("${dir:/etc/keys:../s.properties}", {}, "must have the form ${dir:DIRECTORY:FILE NAME}"),
        ("${env:NONE}", {}, "the environment variable NONE is not set"),
        ("${env:a:ZONE}", {}, "must have the form ${env:NAME}, without a path"),
        ("${env:ZONE}", {"env__allowlist_pattern": "ZON"}, "=ZON does not allow this variable"),
        ("${env:ZONE}", {"env__allowlist_pattern": "("}, "env.param.allowlist.pattern=("),
        (
            "${file:/etc/s.properties:rack}", {"file__allowed_paths": "/etc/keys,/var"},
            "/etc/s.properties is not below allowed.paths=/etc/keys,/var",
        ),
        (
            "${file:/etc/keys/../s.properties:rack}", {"file__allowed_paths": "/etc/keys"},
            "is not below allowed.paths",
        ),
        ("${file:s.properties:rack}", {"file__allowed_paths": "/etc"}, "is not below"),
        ("${dir:/etc/keysmith:a}", {"dir__allowed_paths": "/etc/keys"}, "is not below"),
        (
            "${file:/etc/s.properties:rack}", {"file__allowed_paths": "etc"},
            "config.providers.file.param.allowed.paths=etc: 'etc' must be an absolute path",
        ),
    ],
)  # fmt: skip
def test_a_variable_without_a_value_is_refused_with_the_reason(text, params, words):
    with pytest.raises(InvalidConfigError) as refused:
        found(text, **params)
    assert words in str(refused.value)
    assert "o: " + text in str(refused.value)
    assert "zone b" not in str(refused.value)


def test_paths_that_are_allowed_and_what_is_below_them_are_read():
    allowed = {"file__allowed_paths": "/var, /etc/", "dir__allowed_paths": "/etc/keys"}
    text = "${file:/etc/keys/../s.properties:rack} ${dir:/etc/keys:key.pem}"
    assert found(text, **allowed) == {"o": "zone b -----\nx\n"}
    assert found("${env:ZONE}", env__allowlist_pattern="ZO.*") == {"o": "z1"}


@pytest.mark.parametrize("written", ["", "com.acme.Vault", "FileConfigProviders"])
def test_a_provider_that_does_not_exist_is_refused(written):
    properties = {"config.providers": "vault", "config.providers.vault.class": written}
    with pytest.raises(InvalidConfigError) as refused:
        resolve(properties, Host())
    assert f"config.providers.vault.class={written}: must be one of org.apache" in str(
        refused.value
    )


def test_variables_of_providers_that_nobody_has_named_are_found():
    assert left({"a": "${file:x:y}", "b": "${kafka.logs.dir}", "c": "${secret:x}"}) == ["a"]
