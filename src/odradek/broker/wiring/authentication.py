"""How SASL listeners authenticate their clients, and how this broker logs in to others.

For each listener: `sasl.enabled.mechanisms`, and `listener.name.LISTENER.MECHANISM.OPTION` for
`sasl.jaas.config`, `connections.max.reauth.ms` and `sasl.server.callback.handler.class`. A mistake
prevents the start: a listener that refuses every client, or accepts clients by other rules than
those that are written, would be found too late.
"""

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from odradek.broker.incidents import Incidents
from odradek.broker.serving.authentication import Authentication
from odradek.broker.serving.authentication_counts import CountsByListener
from odradek.broker.serving.request_loop import RequestLoop
from odradek.broker.serving.scram_credentials import ScramCredentials
from odradek.broker.serving.tls_listeners import ENCRYPTED, TlsListeners
from odradek.broker.serving.worker import LoopWorker
from odradek.broker.wiring.options import security_protocols_of
from odradek.broker.world import World
from odradek.config.broker import LISTENER_PREFIX, BrokerConfig
from odradek.config.option import as_number, as_words
from odradek.model.clock import WallMs, read_clocks
from odradek.model.errors import StartupError
from odradek.net.channel import Connector
from odradek.net.server import Server
from odradek.net.tls.connector import TlsConnector
from odradek.net.turns import Turns
from odradek.security.sasl.bearer_login import (
    BearerLoginError,
    is_unsecured,
    subject_of,
    token_request,
    unsecured_token,
)
from odradek.security.sasl.exchange import SaslRules
from odradek.security.sasl.gssapi import GssapiServer
from odradek.security.sasl.jaas import JaasError, LoginModule, parse_jaas
from odradek.security.sasl.kerberos_names import (
    KerberosNameError,
    NameRule,
    parse_rules,
    short_name,
)
from odradek.security.sasl.oauthbearer import OAuthBearerServer, Validate
from odradek.security.sasl.plain import PlainServer, plain_users
from odradek.security.sasl.scram import SCRAM_HASHES, ScramServer, TokenCredential
from odradek.security.sasl.step import Computation, SaslServer

if TYPE_CHECKING:
    from odradek.broker.cluster.sasl_connector import BrokerLogin

BETWEEN_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
JAAS_CONFIG: Final = "sasl.jaas.config"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
KERBEROS_SERVICE: Final = "sasl.kerberos.service.name"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
_CALLBACK_HANDLER: Final = "sasl.server.callback.handler.class"
# Kafka's class that verifies tokens by `sasl.oauthbearer.jwks.endpoint.url`, as this broker does.
_KEYS_HANDLER: Final = "OAuthBearerValidatorCallbackHandler"
_NONCE_BYTES: Final = 18
# The login module of a mechanism, without its package, and what to write for it.
_SCRAM: Final = (
    "ScramLoginModule",
    (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="..." '
        'password="...";'
    ),
)
_MODULES: Final = {
    "PLAIN": (
        "PlainLoginModule",
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="...";',
    ),
    **dict.fromkeys(SCRAM_HASHES, _SCRAM),
    OAUTHBEARER: (
        "OAuthBearerLoginModule",
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    ),
    GSSAPI: (
        "Krb5LoginModule",
        (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
            'keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";'
        ),
    ),
}


class SaslSources(NamedTuple):
    """What mechanisms need beside the options."""

    scram: ScramCredentials
    # The delegation token of a mechanism and an id; None: there is none.
    tokens: Callable[[str, str], TokenCredential | None] = lambda _mechanism, _id: None
    bearer: Mapping[str, Validate] = {}  # by listener, for OAUTHBEARER


class _InWorker:
    """A mechanism whose answers are computed outside of the event loop."""

    def __init__(self, server: OAuthBearerServer | GssapiServer) -> None:
        self._server = server

    def step(self, token: bytes) -> Computation:
        return Computation(partial(self._server.step, token))


def authentication_of(
    world: World, server: Server, requests: RequestLoop, tls: TlsListeners
) -> Authentication:
    """What authenticates the clients of SASL listeners; `open_sasl` gives it the rules."""
    return Authentication(
        server,
        unauthenticated=server.unauthenticated,
        note_refusal=requests.note_refusal,
        worker=world.worker or LoopWorker(world.loop),
        now=lambda: read_clocks(world.clock),
        call_later=world.loop.call_later,
        counts=tls.counts,
    )


def tls_listeners_of(
    world: World, turns: Turns, requests: Callable[[], RequestLoop]
) -> TlsListeners:
    """The listeners with TLS; `open` loads their key stores."""
    return TlsListeners(
        soon=turns.soon,
        wall_ms=world.clock.wall_ms,
        refused=lambda connection, why: requests().note_refusal(connection, why),
        counts=CountsByListener(world.clock.monotonic_ms),
    )


def open_sasl(
    config: BrokerConfig,
    authentication: Authentication,
    server: Server,
    sources: SaslSources,
    *,
    decoy_secret: bytes,
) -> None:
    """Authenticate the connections of all SASL listeners.

    `decoy_secret` is the cluster's, if a listener has SCRAM (`uses_scram`).

    Raises:
        StartupError: a listener's mechanisms cannot be used as they are configured.
    """
    if uses_sasl(protocol_between_brokers(config)):
        broker_login(config)
    for point in config.listeners:
        if uses_sasl(point.security_protocol):
            rules = sasl_rules(config, point.listener, sources, decoy_secret)
            authentication.set_rules(point.listener, rules)
            server.in_front[point.listener] = authentication


def listeners_with(config: BrokerConfig, mechanism: str) -> list[str]:
    """The listeners whose clients may use a mechanism.

    Raises:
        StartupError: the mechanisms of a listener cannot be used.
    """
    return [
        point.listener
        for point in config.listeners
        if uses_sasl(point.security_protocol)
        and mechanism in enabled_mechanisms(config, point.listener)
    ]


def uses_scram(config: BrokerConfig) -> bool:
    """Whether a client may log in by SCRAM on some listener."""
    return any(listeners_with(config, mechanism) for mechanism in SCRAM_HASHES)


def connector_of(
    config: Callable[[], BrokerConfig], world: World, incidents: Incidents, tls: TlsListeners
) -> Connector:
    """What connects this broker to others, with the security protocol of their listener."""
    first = config()
    protocol = protocol_between_brokers(first)
    client_id = f"broker-{first.broker_id}"

    def refused(host: str, what: str) -> None:
        incidents.refused(what, host=host, client_id=client_id, software="unknown unknown")

    network: Connector = world.network
    if protocol in ENCRYPTED:
        network = TlsConnector(
            world.network, partial(tls.client_context, first.inter_broker_listener), refused
        )
    if not uses_sasl(protocol):
        return network
    from odradek.broker.cluster.sasl_connector import SaslConnector  # noqa: PLC0415 - with ssl

    token = None
    if str(first.values[BETWEEN_BROKERS]) == OAUTHBEARER:
        from odradek.client.security.bearer import BearerTokens  # noqa: PLC0415 - with urllib

        token = BearerTokens(world.clock.wall_ms).token

    def login() -> "BrokerLogin":
        return broker_login(config())._replace(token=token)

    return SaslConnector(
        network,
        login,
        worker=world.worker or LoopWorker(world.loop),
        monotonic_ms=world.clock.monotonic_ms,
        refused=refused,
        client_id=client_id,
    )


def protocol_between_brokers(config: BrokerConfig) -> str:
    """The security protocol of the listener over which brokers connect to each other."""
    return security_protocols_of(config).get(config.inter_broker_listener, "PLAINTEXT")


def broker_login(config: BrokerConfig) -> "BrokerLogin":
    """How this broker logs in to others, whose listener uses SASL.

    Raises:
        StartupError: the mechanism is not available, or has no user name and password.
    """
    from odradek.broker.cluster.sasl_connector import BrokerLogin  # noqa: PLC0415 - with ssl

    listener = config.inter_broker_listener
    mechanism = str(config.values[BETWEEN_BROKERS])
    enabled = enabled_mechanisms(config, listener)
    if mechanism not in enabled:
        raise StartupError(
            f"{BETWEEN_BROKERS}={mechanism}: brokers connect to each other over listener "
            f"{listener}, whose mechanisms are {', '.join(enabled)}: set it to one of them"
        )
    if mechanism == OAUTHBEARER:
        return _bearer_login(config, listener)
    if mechanism == GSSAPI:
        return _gssapi_login(config, listener)
    needs = "brokers log in to each other by its username and password"
    module = login_module(config, listener, mechanism, needs=needs)
    option = mechanism_option(listener, mechanism, JAAS_CONFIG)
    missing = [name for name in ("username", "password") if not module.options.get(name)]
    if missing:
        raise StartupError(f"{option} has no {' and no '.join(missing)}: {needs}")
    remedy = f"the user and its password are the same in {option} here and on that broker"
    return BrokerLogin(
        mechanism, str(config.values[option]), remedy=remedy, user=module.options["username"]
    )


def _bearer_login(config: BrokerConfig, listener: str) -> "BrokerLogin":
    from odradek.broker.cluster.sasl_connector import BrokerLogin  # noqa: PLC0415 - with ssl

    needs = f"brokers log in to each other by the token of {TOKEN_URL} or of its claims"
    options = login_module(config, listener, OAUTHBEARER, needs=needs).options
    name = mechanism_option(listener, OAUTHBEARER, JAAS_CONFIG)
    url = config.for_listener(listener, TOKEN_URL)
    scheme = "" if url is None else urlsplit(str(url)).scheme
    try:
        if url is None:
            unsecured_token(options, WallMs(0))
        elif scheme == "https":
            token_request(options)
    except BearerLoginError as error:
        raise StartupError(
            f"{name}: {error}; set it, or {TOKEN_URL} to a file with a token"
        ) from None
    if scheme not in ("", "https", "file"):
        raise StartupError(f"{TOKEN_URL}={url}: must be an https: or a file: URL")
    if url is not None and is_unsecured(options):
        raise StartupError(f"{TOKEN_URL} and claims in {name} are set: remove one")
    return BrokerLogin(
        OAUTHBEARER,
        str(config.values[name]),
        remedy=f"that broker accepts the token of {name if url is None else TOKEN_URL}",
        user=subject_of(options) if url is None else None,
        token_url=None if url is None else str(url),
    )


def _gssapi_login(config: BrokerConfig, listener: str) -> "BrokerLogin":
    from odradek.broker.cluster.sasl_connector import BrokerLogin  # noqa: PLC0415 - with ssl

    needs = "brokers log in to each other by the key of its keytab"
    options = login_module(config, listener, GSSAPI, needs=needs).options
    name = mechanism_option(listener, GSSAPI, JAAS_CONFIG)
    missing = [each for each in ("keyTab", "principal") if not options.get(each)]
    if missing or options.get("useKeyTab", "").lower() != "true":
        raise StartupError(f"{name} needs useKeyTab=true, keyTab and principal: {needs}")
    service = config.for_listener(listener, KERBEROS_SERVICE) or options.get("serviceName")
    if not service:
        raise StartupError(
            f"{KERBEROS_SERVICE} is not set: it is the first part of the principals that the "
            f"brokers have in {name}"
        )
    principal = options["principal"]
    realm = principal.partition("@")[2]
    try:
        user = short_name(principal, _local_rules(config, listener), realm)
    except KerberosNameError as error:
        raise StartupError(f"listener {listener}: GSSAPI: {error}") from None
    return BrokerLogin(
        GSSAPI,
        str(config.values[name]),
        remedy=f"that broker has the principal {service}/HOST, with the host that it advertises",
        user=user,
        kerberos_service=str(service),
    )


def uses_sasl(security_protocol: str) -> bool:
    """Whether clients of a listener authenticate by SASL."""
    return security_protocol.startswith("SASL_")


def sasl_rules(
    config: BrokerConfig, listener: str, sources: SaslSources, decoy_secret: bytes
) -> SaslRules:
    """The rules of one listener.

    Raises:
        StartupError: a mechanism cannot be used as it is configured.
    """
    mechanisms = enabled_mechanisms(config, listener)
    return SaslRules(
        servers={
            mechanism: _server(config, listener, mechanism, sources, decoy_secret)
            for mechanism in mechanisms
        },
        max_reauth_ms={
            mechanism: _max_reauth_ms(config, listener, mechanism) for mechanism in mechanisms
        },
        failure_delay_ms=config.number("connection.failed.authentication.delay.ms"),
        receive_bytes_max=_number(config, listener, "sasl.server.max.receive.size"),
    )


def enabled_mechanisms(config: BrokerConfig, listener: str) -> tuple[str, ...]:
    """The mechanisms that a listener's clients may use.

    Raises:
        StartupError: one of them is not available, or there is none.
    """
    enabled = as_words(config.for_listener(listener, "sasl.enabled.mechanisms"))
    missing = [each for each in enabled if each not in _MODULES]
    if enabled and not missing:
        return enabled
    why = f"{', '.join(missing)} is not available here" if missing else "it names no mechanism"
    raise StartupError(
        f"listener {listener}: sasl.enabled.mechanisms={','.join(enabled)}: {why}; set "
        f"{listener_option(listener, 'sasl.enabled.mechanisms')} to some of {', '.join(_MODULES)}"
    )


def login_module(config: BrokerConfig, listener: str, mechanism: str, *, needs: str) -> LoginModule:
    """A mechanism's `sasl.jaas.config` on a listener; `needs` says what it has to contain.

    Raises:
        StartupError: it is not set, or is not of this mechanism.
    """
    name = mechanism_option(listener, mechanism, JAAS_CONFIG)
    module, example = _MODULES[mechanism]
    text = config.values.get(name)
    if text is None:
        raise StartupError(f"{name} is not set; {needs}, for example: {example}")
    try:
        parsed = parse_jaas(str(text))
    except JaasError as error:
        raise StartupError(f"{name}: {error}; for example: {example}") from None
    if parsed.module.rpartition(".")[2] != module:
        raise StartupError(f"{name}: {parsed.module} cannot be used for {mechanism}: use {module}")
    return parsed


def listener_option(listener: str, name: str) -> str:
    """The name of an option for one listener."""
    return f"{LISTENER_PREFIX}{listener.lower()}.{name}"


def mechanism_option(listener: str, mechanism: str, name: str) -> str:
    """The name of an option for one mechanism of one listener."""
    return listener_option(listener, f"{mechanism.lower()}.{name}")


# ------------------------------------------------------------------------------------- inside


def _server(
    config: BrokerConfig,
    listener: str,
    mechanism: str,
    sources: SaslSources,
    decoy_secret: bytes,
) -> Callable[[], SaslServer]:
    _refuse_callback_handler(config, listener, mechanism)
    if mechanism == "PLAIN":
        needs = "PLAIN has its users there"
        users = plain_users(login_module(config, listener, mechanism, needs=needs))
        if not users:
            name = mechanism_option(listener, mechanism, JAAS_CONFIG)
            raise StartupError(f'{name} has no user: add user_NAME="PASSWORD" for each')
        return partial(PlainServer, users)
    if mechanism == OAUTHBEARER:
        validate = sources.bearer[listener]
        return lambda: _InWorker(OAuthBearerServer(validate))
    if mechanism == GSSAPI:
        return _gssapi_server(config, listener)
    return lambda: ScramServer(
        mechanism,
        credentials=partial(sources.scram.credential, mechanism),
        tokens=partial(sources.tokens, mechanism),
        nonce=secrets.token_urlsafe(_NONCE_BYTES),
        decoy_secret=decoy_secret,
    )


def _gssapi_server(config: BrokerConfig, listener: str) -> Callable[[], SaslServer]:
    from odradek.net.gss import GssUnavailableError, acceptor  # noqa: PLC0415 - an extra

    needs = "GSSAPI has the broker's key there"
    options = login_module(config, listener, GSSAPI, needs=needs).options
    name = mechanism_option(listener, GSSAPI, JAAS_CONFIG)
    principal, keytab = (options.get(key, "") for key in ("principal", "keyTab"))
    service, _, realm = principal.partition("@")
    if not realm or "/" not in service or not keytab:
        raise StartupError(f"{name} needs keyTab, and a principal of the form kafka/host@REALM")
    expected = config.for_listener(listener, KERBEROS_SERVICE)
    if expected is not None and expected != service.partition("/")[0]:
        raise StartupError(
            f"{name}: {principal}: sasl.kerberos.service.name is {expected}: set one like the other"
        )
    try:
        rules = _local_rules(config, listener)
        begin = acceptor(principal, keytab.removeprefix("file:"))
    except (KerberosNameError, GssUnavailableError) as error:
        raise StartupError(f"listener {listener}: GSSAPI: {error}") from None
    return lambda: _InWorker(GssapiServer(begin(), lambda client: short_name(client, rules, realm)))


def _local_rules(config: BrokerConfig, listener: str) -> list[NameRule]:
    """The rules that make users of Kerberos principals; raises KerberosNameError."""
    texts = config.for_listener(listener, "sasl.kerberos.principal.to.local.rules")
    return parse_rules(as_words(texts))


def _refuse_callback_handler(config: BrokerConfig, listener: str, mechanism: str) -> None:
    for name in (
        mechanism_option(listener, mechanism, _CALLBACK_HANDLER),
        listener_option(listener, _CALLBACK_HANDLER),
        _CALLBACK_HANDLER,
    ):
        found = str(config.values.get(name) or "")
        is_ours = mechanism == OAUTHBEARER and found.rpartition(".")[2] == _KEYS_HANDLER
        if found and not is_ours:
            raise StartupError(
                f"{name}={found}: classes of Java are not loaded here; remove it, "
                f"or disable {mechanism}"
            )


def _max_reauth_ms(config: BrokerConfig, listener: str, mechanism: str) -> int:
    name = "connections.max.reauth.ms"
    own = mechanism_option(listener, mechanism, name)
    return config.number(own) if own in config.values else _number(config, listener, name)


def _number(config: BrokerConfig, listener: str, name: str) -> int:
    return as_number(config.for_listener(listener, name), name)
