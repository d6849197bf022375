"""The table of APIs: every API has a file, every version is answered, and nothing else."""

import pathlib

import pytest
from tests.unit.broker.every_api import EXAMPLES, error_codes
from tests.unit.broker.live import play, produce, produced

import odradek.broker.apis
from odradek.model.errors import ErrorCode
from odradek.wire.api_keys import APIS, OWN_APIS, OWN_SOFTWARE, ApiKey
from odradek.wire.codec import decoder
from odradek.wire.header import encode_request_header
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

# Where the lowest versions of an API have another answer than the others.
EXPECTED = {
    # The examples of these versions have no records.
    **{(ApiKey.PRODUCE, version): ErrorCode.NONE for version in range(3)},
    # Version 0 needs no coordinator: the store has these offsets.
    (ApiKey.OFFSET_COMMIT, 0): ErrorCode.NONE,
    (ApiKey.OFFSET_FETCH, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


every_example = pytest.mark.parametrize("example", EXAMPLES, ids=str)


def versions(key):
    accepted = APIS[key].accepted
    return range(accepted.first, accepted.last + 1)


def keys(live):
    requests = live.broker.requests
    return requests._routes.keys() | requests._raw.keys()


async def prepared(live):
    await live.topic("t", 2)
    for _ in range(3):
        live.append(b"a")
    return live.peer()


OTHER_FILES = {"__init__", "table", "usual_fetch", "usual_produce", "old_fetch", "old_produce"}


def test_every_file_of_the_folder_is_in_the_table_and_the_other_way_round():
    (folder,) = odradek.broker.apis.__path__
    files = {path.stem for path in pathlib.Path(folder).glob("*.py")} - OTHER_FILES

    async def story(live):
        served = {ApiKey(key).name.lower() for key in keys(live)}
        assert served == files

    play(story)


def test_there_is_an_example_of_every_api():
    async def story(live):
        assert {int(example.api) for example in EXAMPLES} == keys(live)

    play(story)


INSIDE_AND_OUTSIDE = {
    "listeners": "INSIDE://b0:9092,OUTSIDE://b0:9093",
    "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter_broker_listener_name": "INSIDE",
}


async def advertised(live, port, software="a"):
    request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
    response = await live.peer(port).ask(request)
    return {a.api_key: (a.min_version, a.max_version) for a in response.api_keys}


def test_what_is_advertised_is_what_is_served_and_the_same_on_every_listener():
    async def story(live):
        listed = keys(live) - OWN_APIS | {ApiKey.ENVELOPE}
        served = {key: tuple(APIS[key].served) for key in listed}

        assert await advertised(live, 9092) == served
        assert await advertised(live, 9093) == served


KAFKA_3_9 = pathlib.Path(__file__).parent / "kafka_3_9_api_versions.txt"


def recorded_of_kafka():
    """The responses of Apache Kafka 3.9.2 in ZooKeeper mode, by the version of the request."""
    _, *lines = KAFKA_3_9.read_text().splitlines()
    for line in lines:
        version, data = line.split()
        decode = decoder(ApiVersionsResponse, int(version))
        yield int(version), decode(memoryview(bytes.fromhex(data)), 0)[0]


def test_the_response_is_kafkas_in_every_version():
    """Without version 2 of transactions, which Kafka has in KRaft mode only."""

    async def story(live):
        named = {"client_software_name": "a", "client_software_version": "1"}
        versions = []
        for version, kafka in recorded_of_kafka():
            request = ApiVersionsRequest(**(named if version >= 3 else {}))
            ours = await live.peer().ask(request, version)
            # Ours counts the changes of the level of transactions; Kafka's stays 0.
            kafka.finalized_features_epoch = ours.finalized_features_epoch
            assert ours == kafka, version
            versions.append(version)
        assert versions == [0, 1, 2, 3, 4]

    play(story, odradek_transaction_version_max=1, **INSIDE_AND_OUTSIDE)


def test_only_our_own_clients_see_the_key_that_is_not_kafkas():
    async def story(live):
        others, ours = await advertised(live, 9093), await advertised(live, 9093, OWN_SOFTWARE)

        assert ours == {**others, ApiKey.DESCRIBE_STATE: (0, 0)}
        assert max(others) < 100

    play(story, **INSIDE_AND_OUTSIDE)


@every_example
def test_every_version_is_answered(example):
    for version in versions(example.api):
        play(answered(example, version))


def answered(example, version):
    async def story(live):
        peer = await prepared(live)
        response = await peer.ask(example.request(live, version), version)
        expected = EXPECTED.get((example.api, version), example.allowed)

        assert error_codes(response) == {expected}, version
        assert not peer.closed

    return story


def fail(*_):
    raise RuntimeError("an unexpected error")


@every_example
def test_an_unexpected_exception_is_answered_or_closes_the_connection_and_no_more(example):
    async def story(live):
        requests = live.broker.requests
        await prepared(live)
        asked = [(example.request(live, version), version) for version in versions(example.api)]
        raw, route = requests._raw.get(example.api), requests._routes.get(example.api)
        usual = requests.usual.get(example.api)
        if raw is not None:
            requests._raw[example.api] = requests.usual[example.api] = fail
        else:
            requests._routes[example.api] = route._replace(handle=fail)
        for request, version in asked:
            peer = live.peer()
            answer = peer.send(request, version)
            error = None if peer.closed else answer.result().error_code
            assert error in {None, ErrorCode.UNKNOWN_SERVER_ERROR}, version
        assert live.broker.metrics.requests.failed == len(asked)

        if raw is not None:
            requests._raw[example.api], requests.usual[example.api] = raw, usual
        assert produced(await live.peer().ask(produce(live.batch(b"a")))) == {("t", 0): 3}

    play(story)


@pytest.mark.parametrize("key", [*sorted(set(APIS) - {int(e.api) for e in EXAMPLES}), 99, -1])
def test_an_api_that_is_not_served_ends_the_connection(key):
    async def story(live):
        peer = live.peer()
        peer.send_frame(key.to_bytes(2, "big", signed=True) + bytes(8))

        assert peer.closed
        assert live.broker.metrics.requests.malformed == 1

    play(story)


@pytest.mark.parametrize("key", sorted({int(e.api) for e in EXAMPLES} - {ApiKey.API_VERSIONS}))
def test_a_version_that_is_not_served_ends_the_connection(key):
    async def story(live):
        served = APIS[key].accepted
        for version in {served.first - 1, served.last + 1, 32_767} - {-1}:
            peer = live.peer()
            header = bytearray(encode_request_header(key, APIS[key].last, 1, "x"))
            header[2:4] = version.to_bytes(2, "big")
            peer.send_frame(bytes(header) + bytes(20))
            assert peer.closed

    play(story)


@pytest.mark.parametrize(
    "example", [example for example in EXAMPLES if APIS[example.api].inter_broker], ids=str
)
def test_brokers_apis_are_refused_on_all_listeners_but_the_inter_broker_listener(example):
    async def story(live):
        await prepared(live)
        for version in versions(example.api):
            outside = live.peer(9093)
            response = await outside.ask(example.request(live, version), version)
            assert error_codes(response) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
            assert not outside.closed
        inside = live.peer(9092)
        response = await inside.ask(example.request(live, version), version)
        assert error_codes(response) == {ErrorCode.NONE}

    play(story, **INSIDE_AND_OUTSIDE)
