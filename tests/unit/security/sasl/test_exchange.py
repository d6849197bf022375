"""A connection's authentication: what is answered before it, to its failures, and after it."""

import asyncio
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.security.protocol import authenticate
from odradek.client.settings import Security
from odradek.model.clock import MonotonicMs, Now, WallMs
from odradek.model.errors import ErrorCode
from odradek.security.sasl.exchange import (
    AnswerError,
    AnswerHandshake,
    AnswerToken,
    Close,
    ConnectionAuthentication,
    HandshakeRequested,
    InvalidReceived,
    OtherRequested,
    Phase,
    Refuse,
    SaslRules,
    Serve,
    SetPrincipal,
    TokenReceived,
    VersionsRequested,
)
from odradek.security.sasl.oauthbearer import BearerToken, OAuthBearerServer
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import ScramServer, derive

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
USERS = {"alice": "alice-secret", "bob": "bob-secret", "a\nb": "x"}
ALICE = TokenReceived(b"\0alice\0alice-secret")
BOB = TokenReceived(b"\0bob\0bob-secret")
WRONG = TokenReceived(b"\0alice\0wrong")
BEARER = TokenReceived(b"n,,\1auth=Bearer x\1\1")
PLAIN = HandshakeRequested("PLAIN", 1)
OAUTH = HandshakeRequested("OAUTHBEARER", 1)
ENABLED = AnswerHandshake(ErrorCode.NONE, MECHANISMS)
WALL_MS = 1_700_000_000_000
CREDENTIAL = derive(
    "SCRAM-SHA-256",
    b"salt",
    hashlib.pbkdf2_hmac("sha256", b"alice-secret", b"salt", 4096),
    4096,
)


def rules(max_reauth_ms=0, token_lifetime_ms=60_000):
    token = BearerToken("alice", frozenset(), WallMs(WALL_MS + token_lifetime_ms))
    return SaslRules(
        servers={
            "PLAIN": lambda: PlainServer(USERS),
            "SCRAM-SHA-256": lambda: ScramServer(
                "SCRAM-SHA-256",
                credentials={"alice": CREDENTIAL}.get,
                tokens={}.get,
                nonce="server",
                decoy_secret=b"decoy",
            ),
            "OAUTHBEARER": lambda: OAuthBearerServer(lambda _: token),
        },
        max_reauth_ms=dict.fromkeys(MECHANISMS, max_reauth_ms),
    )


class Peer:
    """A connection and its clocks."""

    def __init__(self, **given):
        self.state = ConnectionAuthentication(rules(**given))
        self.ms = 0

    def __call__(self, *events):
        """All effects of these events."""
        now = Now(MonotonicMs(self.ms), WallMs(WALL_MS + self.ms))
        return [effect for event in events for effect in self.state.handle(event, now)]


def refusal(effects):
    (refused,) = effects
    assert isinstance(refused, Refuse)
    assert refused.delay_ms == 100
    assert "secret" not in refused.reason
    return refused


def failure(text):
    return AnswerToken(b"", ErrorCode.SASL_AUTHENTICATION_FAILED, text)


# ------------------------------------------------------------------------------ before and during


def test_versions_handshake_and_token():
    peer = Peer()

    assert peer(VersionsRequested(is_valid=True)) == [Serve()]
    assert peer(PLAIN) == [ENABLED]
    assert not peer.state.takes_raw_frames
    assert peer.state.frame_bytes_max == 524_288
    assert peer(ALICE) == [SetPrincipal("User:alice", False, {}), AnswerToken(b"")]
    assert peer.state.phase is Phase.AUTHENTICATED
    assert peer.state.frame_bytes_max is None
    assert peer(OtherRequested("METADATA"), PLAIN, ALICE) == [Serve()] * 3


def test_the_handshake_may_come_first():
    assert Peer()(PLAIN, ALICE)[1:] == [SetPrincipal("User:alice", False, {}), AnswerToken(b"")]


def test_frames_without_a_header_follow_version_0():
    peer = Peer()

    assert peer(HandshakeRequested("PLAIN", 0)) == [ENABLED]
    assert peer.state.takes_raw_frames
    assert peer(ALICE)[1:] == [AnswerToken(b"", is_raw=True)]
    assert not peer.state.takes_raw_frames


def test_a_wrong_password_without_headers_is_not_answered():
    assert refusal(Peer()(HandshakeRequested("PLAIN", 0), WRONG)[1:]).answer is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("version", [0, 1])
def test_our_client(mechanism, version):
    peer = Peer()
    peer(HandshakeRequested(mechanism, version))
    module = "a.b.PlainLoginModule required"
    security = Security(
        protocol="SASL_PLAINTEXT",
        mechanism=mechanism,
        jaas_config=f'{module} username="alice" password="alice-secret";',
    )

    async def send(token):
        *_, answer = peer(TokenReceived(token))
        assert answer.is_raw == (version == 0)
        return answer.token

    asyncio.run(authenticate(security, send))
    assert peer.state.principal == "User:alice"


@pytest.mark.parametrize(
    ("first", "event"),
    [
        ((), OtherRequested("METADATA")),
        ((), ALICE),
        ((), InvalidReceived("a frame of 600000 bytes")),
        ((VersionsRequested(is_valid=True),), OtherRequested("PRODUCE")),
        ((VersionsRequested(is_valid=True),), VersionsRequested(is_valid=True)),
        ((VersionsRequested(is_valid=True),), ALICE),
        ((PLAIN,), InvalidReceived("a frame of 600000 bytes")),
    ],
)
def test_anything_else_before_authentication_closes_the_connection(first, event):
    peer = Peer()
    peer(*first)

    (closed,) = peer(event)
    assert isinstance(closed, Close)
    assert peer(PLAIN, ALICE) == []
    assert peer.state.principal is None


def test_versions_are_requested_again_after_an_error():
    peer = Peer()

    assert peer(VersionsRequested(is_valid=False)) == [Serve()]
    assert peer(VersionsRequested(is_valid=True), PLAIN) == [Serve(), ENABLED]


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "x\ny"])
def test_a_mechanism_that_is_not_enabled(mechanism):
    peer = Peer()

    refused = refusal(peer(HandshakeRequested(mechanism, 1)))
    assert refused.answer == AnswerHandshake(ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert "\n" not in refused.reason
    assert peer(PLAIN, ALICE) == []


@pytest.mark.parametrize(
    ("event", "api"),
    [
        (OtherRequested("METADATA"), "METADATA"),
        (VersionsRequested(is_valid=True), "API_VERSIONS"),
        (PLAIN, "SASL_HANDSHAKE"),
    ],
)
def test_another_request_instead_of_a_token(event, api):
    refused = refusal(Peer()(PLAIN, event)[1:])

    text = f"Unexpected Kafka request of type {api} during SASL authentication."
    assert refused.answer == AnswerError(ErrorCode.ILLEGAL_SASL_STATE, text)


def test_a_wrong_password_is_answered_in_kafkas_words():
    refused = refusal(Peer()(PLAIN, WRONG)[1:])

    assert refused.answer == failure("Authentication failed: Invalid username or password")


def test_a_malformed_token_has_the_text_of_all_invalid_credentials():
    refused = refusal(Peer()(PLAIN, TokenReceived(b"alice"))[1:])

    assert refused.answer == failure(
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism PLAIN"
    )


def test_nothing_follows_a_refusal():
    peer = Peer()
    peer(PLAIN, WRONG)

    assert peer(ALICE, PLAIN, OtherRequested("METADATA")) == []
    assert peer.state.principal is None


# ------------------------------------------------------------------- sessions, re-authentication


def lifetime(effects):
    *_, answer = effects
    assert isinstance(answer, AnswerToken)
    assert answer.error_code == ErrorCode.NONE
    return answer.session_lifetime_ms


def test_the_lifetime_of_a_session_is_the_shorter_of_limit_and_credential():
    assert lifetime(Peer()(PLAIN, ALICE)) == 0
    assert lifetime(Peer(max_reauth_ms=5000)(PLAIN, ALICE)) == 5000
    assert lifetime(Peer()(OAUTH, BEARER)) == 60_000
    assert lifetime(Peer(max_reauth_ms=5000)(OAUTH, BEARER)) == 5000
    assert lifetime(Peer(max_reauth_ms=90_000)(OAUTH, BEARER)) == 60_000


@pytest.mark.parametrize("token_lifetime_ms", [0, -1])
def test_a_credential_that_has_expired(token_lifetime_ms):
    peer = Peer(token_lifetime_ms=token_lifetime_ms)

    assert "has expired" in refusal(peer(OAUTH, BEARER)[1:]).reason
    assert peer.state.principal is None


@pytest.mark.parametrize(
    "event",
    [OtherRequested("METADATA"), VersionsRequested(is_valid=True), ALICE, InvalidReceived("x")],
)
def test_the_first_request_after_the_expiry_closes_the_connection(event):
    peer = Peer(max_reauth_ms=5000)
    peer(PLAIN, ALICE)
    peer.ms = 5000
    assert peer(event) == [Serve()]

    peer.ms = 5001
    assert peer(event) == [Close("the session of 'User:alice' has expired", has_expired=True)]


@pytest.mark.parametrize("ms", [0, 4000, 5000, 5001, 50_000])
def test_a_client_authenticates_again(ms):
    peer = Peer(max_reauth_ms=5000)
    peer(PLAIN, ALICE)
    peer.ms = ms

    assert peer(PLAIN) == [ENABLED]
    assert peer.state.frame_bytes_max == 524_288
    assert lifetime(peer(ALICE)) == 5000
    peer.ms += 5000
    assert peer(OtherRequested("METADATA")) == [Serve()]


def test_at_most_once_a_second():
    peer = Peer(max_reauth_ms=500)
    peer(PLAIN, ALICE, PLAIN, ALICE)

    peer.ms = 400
    assert peer(PLAIN) == [Serve()]
    peer.ms = 999
    assert peer(PLAIN) == [Close("the session of 'User:alice' has expired", has_expired=True)]


def test_no_other_request_is_handled_during_the_re_authentication():
    peer = Peer(max_reauth_ms=5000)
    peer(PLAIN, ALICE, PLAIN)

    refused = refusal(peer(OtherRequested("METADATA")))
    assert isinstance(refused.answer, AnswerError)
    assert peer(ALICE) == []


def test_the_principal_may_not_change():
    peer = Peer(max_reauth_ms=5000)
    peer(PLAIN, ALICE, PLAIN)

    assert refusal(peer(BOB)).answer == failure(
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )


def test_the_mechanism_may_not_change():
    peer = Peer(max_reauth_ms=5000)
    peer(PLAIN, ALICE)

    assert peer(OAUTH) == [ENABLED]
    refused = refusal(peer(BEARER))
    assert refused.answer is None
    assert "another mechanism than PLAIN" in refused.reason


def test_a_wrong_password_ends_the_session():
    peer = Peer(max_reauth_ms=5000)
    peer(PLAIN, ALICE, PLAIN)

    refused = refusal(peer(TokenReceived(b"alice")))
    assert refused.answer == failure(
        "Authentication failed during re-authentication due to invalid credentials with SASL "
        "mechanism PLAIN"
    )
    assert peer(OtherRequested("METADATA")) == []


def test_a_mechanism_that_is_not_enabled_ends_the_session():
    peer = Peer(max_reauth_ms=5000)
    peer(PLAIN, ALICE)

    refused = refusal(peer(HandshakeRequested("GSSAPI", 1)))
    assert refused.answer == AnswerHandshake(ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)


def test_the_log_has_no_line_breaks_of_a_user_name():
    peer = Peer(max_reauth_ms=500)
    peer(PLAIN, TokenReceived(b"\0a\nb\0x"))
    peer.ms = 501

    (close,) = peer(OtherRequested("METADATA"))
    assert close.reason == r"the session of 'User:a\nb' has expired"


# ------------------------------------------------------------------------------------ properties

EVENTS = st.one_of(
    st.builds(VersionsRequested, st.booleans()),
    st.builds(HandshakeRequested, st.sampled_from([*MECHANISMS[:2], "GSSAPI"]), st.integers(0, 1)),
    st.builds(TokenReceived, st.binary(max_size=8) | st.just(b"n,,n=alice,r=abc")),
    st.just(WRONG),
    st.just(OtherRequested("METADATA")),
    st.just(InvalidReceived("noise")),
)


@given(st.lists(EVENTS, max_size=12))
def test_no_client_is_authenticated_without_a_password(events):
    peer = Peer(max_reauth_ms=5000)
    effects = peer(*events)

    assert peer.state.principal is None
    assert not any(isinstance(effect, SetPrincipal) for effect in effects)
    served = [event for event in events if isinstance(event, VersionsRequested)]
    assert effects.count(Serve()) <= len(served)
    ends = [index for index, each in enumerate(effects) if isinstance(each, Refuse | Close)]
    assert ends in ([], [len(effects) - 1])
    assert (peer.state.phase is Phase.CLOSED) == bool(ends)


@given(st.lists(st.tuples(EVENTS | st.sampled_from([PLAIN, ALICE, BOB]), st.integers(0, 3000))))
def test_a_connection_has_one_principal(steps):
    peer = Peer(max_reauth_ms=5000)
    effects = []
    for event, pause_ms in [(PLAIN, 0), (ALICE, 0), *steps]:
        peer.ms += pause_ms
        effects += peer(event)

    principals = {effect.principal for effect in effects if isinstance(effect, SetPrincipal)}
    assert principals == {"User:alice"}
