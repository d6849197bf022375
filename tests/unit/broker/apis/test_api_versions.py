"""ApiVersions: the first request of every client, so every client must understand its errors."""

import pytest
from tests.unit.broker.live import play

from odradek.model.errors import ErrorCode
from odradek.wire.codec import decoder
from odradek.wire.header import decode_response_header, encode_request_header
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


@pytest.mark.parametrize("version", [5, 6, 32_767])
def test_a_version_we_do_not_serve_is_answered_in_the_layout_of_version_0(version):
    async def story(live):
        peer = live.peer()
        frame = bytearray(encode_request_header(18, 4, 77, "client"))
        frame[2:4] = version.to_bytes(2, "big")
        answer = peer.expect_frame()
        peer.send_frame(bytes(frame) + b"fields of a later version")
        view = memoryview(await answer)
        correlation_id, position = decode_response_header(view, 0, 18, 0)
        response, end = decoder(ApiVersionsResponse, 0)(view, position)

        assert (correlation_id, end) == (77, len(view))
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        (only,) = response.api_keys
        assert (only.api_key, only.min_version, only.max_version) == (18, 0, 4)
        assert not peer.closed, "it tries again here"
        assert (await peer.ask(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE

    play(story)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software_version", "error"),
    [
        ("apache-kafka-java", "3.9.0", ErrorCode.NONE),
        ("a", "1", ErrorCode.NONE),
        ("a.b-c", "1-2.3", ErrorCode.NONE),
        ("", "1", ErrorCode.INVALID_REQUEST),
        ("a", "", ErrorCode.INVALID_REQUEST),
        ("-a", "1", ErrorCode.INVALID_REQUEST),
        ("a-", "1", ErrorCode.INVALID_REQUEST),
        ("a b", "1", ErrorCode.INVALID_REQUEST),
        ("a\n", "1", ErrorCode.INVALID_REQUEST),
        ("ä", "1", ErrorCode.INVALID_REQUEST),
        ("a", "1{}", ErrorCode.INVALID_REQUEST),
    ],
)
def test_software_is_named_so_that_a_metric_can_be(version, name, software_version, error):
    async def story(live):
        peer = live.peer()
        request = ApiVersionsRequest(
            client_software_name=name, client_software_version=software_version
        )
        response = await peer.ask(request, version)
        session = peer.connection.session

        is_good = error is ErrorCode.NONE
        assert response.error_code == error
        assert bool(response.api_keys) is is_good
        assert session.software_name == (name if is_good else "unknown")
        assert session.software_version == (software_version if is_good else "unknown")
        assert not peer.closed

    play(story)


def test_older_versions_have_no_software_name_and_need_none():
    async def story(live):
        for version in (0, 1, 2):
            response = await live.peer().ask(ApiVersionsRequest(), version)
            assert response.error_code == ErrorCode.NONE
            assert len(response.api_keys) > 15

    play(story)


def test_inter_broker_apis_and_sasl_are_advertised_and_there_are_no_features():
    async def story(live):
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        response = await live.peer().ask(request)

        assert {4, 5, 6, 7, 17, 36, 56, 67} < {api.api_key for api in response.api_keys}
        assert {api.api_key: api.min_version for api in response.api_keys}[0] == 0
        assert (response.supported_features, response.finalized_features) == ([], [])
        assert response.finalized_features_epoch == 1
        assert not response.zk_migration_ready

    play(story, odradek_transaction_version_max=1)
