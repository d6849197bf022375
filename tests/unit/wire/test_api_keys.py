"""The table of APIs against the files of messages."""

import pathlib
import subprocess
import sys

import pytest

import odradek.wire.messages
from odradek.model.errors import MalformedRequestError
from odradek.wire.api_keys import APIS, OWN_APIS, ApiKey, api, request_class, response_class

MODULES = {path.stem for path in pathlib.Path(odradek.wire.messages.__file__).parent.glob("*.py")}
NOT_APIS = {
    "__init__", "consumer_offsets", "consumer_protocol", "describe_topic_partitions",
    "transaction_state", "transaction_version_2",
}  # fmt: skip


def test_every_api_has_its_file_and_every_file_its_api():
    assert {known.key.name.lower() for known in APIS.values()} == MODULES - NOT_APIS


def test_every_key_has_its_row():
    assert set(APIS) == set(ApiKey)


@pytest.mark.parametrize("known", APIS.values(), ids=lambda known: known.name)
def test_messages_declare_the_versions_of_the_table(known):
    for message, side in ((known.request_class, "Request"), (known.response_class, "Response")):
        schema = message.SCHEMA
        assert schema.name == known.name + side
        assert schema.api_key == known.key
        assert schema.versions == known.decodable
        for version in range(schema.versions.first, schema.versions.last + 1):
            assert (version in schema.flexible) == known.is_flexible(version)


@pytest.mark.parametrize(
    "known",
    [known for known in APIS.values() if known.key not in OWN_APIS],
    ids=lambda known: known.name,
)
def test_what_we_serve_is_part_of_what_kafka_serves(known):
    assert known.kafka.first <= known.served.first <= known.served.last <= known.kafka.last
    assert (known.first, known.last) == known.served


def test_an_unknown_key_is_refused():
    with pytest.raises(MalformedRequestError, match="api key 70; no such API here"):
        api(70)


def test_classes_are_found_by_key():
    assert request_class(3).__name__ == "MetadataRequest"
    assert response_class(3).__name__ == "MetadataResponse"


def test_message_modules_are_imported_at_their_first_use():
    program = (
        "import sys; from odradek.wire.api_keys import request_class\n"
        "loaded = lambda: {n for n in sys.modules if n.startswith('odradek.wire.messages.')}\n"
        "assert not loaded(), loaded()\n"
        "request_class(12)\n"
        "assert loaded() == {'odradek.wire.messages.heartbeat'}, loaded()\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(pathlib.Path(odradek.wire.__file__).parents[2])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert answer.returncode == 0, answer.stderr
