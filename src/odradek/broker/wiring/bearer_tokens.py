"""What verifies the bearer tokens of OAUTHBEARER on each listener, as the options say.

Without keys there is no listener: a broker that accepted tokens which it cannot verify would accept
every name (CVE-2026-33557).
"""

import logging
from functools import partial
from typing import Final

from odradek.broker.serving.bearer_keys import BearerKeys, KeysError, KeySource, ThreadReader
from odradek.broker.serving.tasks import Tasks
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.config.option import as_number, as_words
from odradek.model.errors import StartupError
from odradek.security.sasl.bearer_tokens import ClaimRules, UnsecuredTokens
from odradek.security.sasl.oauthbearer import Validate

log = logging.getLogger(__name__)
_PREFIX: Final = "sasl.oauthbearer."
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_UNSECURED: Final = "odradek.sasl.oauthbearer.unsecured.tokens"


async def bearer_validator(
    config: BrokerConfig, listener: str, world: World, tasks: Tasks
) -> Validate:
    """The validator of a listener, with its keys, which are read again in the background.

    Raises:
        StartupError: the keys cannot be read, or none are configured.
    """
    rules = _rules(config, listener)
    url = config.for_listener(listener, _URL)
    if config.for_listener(listener, _UNSECURED):
        if url is not None:
            raise StartupError(f"listener {listener}: {_URL} and {_UNSECURED} are set: remove one")
        log.warning(
            "listener %s accepts bearer tokens without a signature: every client may use every "
            "name; unset %s and set %s",
            listener,
            _UNSECURED,
            _URL,
        )
        return UnsecuredTokens(rules, world.clock.wall_ms, anybody_may_claim_any_name=True)
    if url is None:
        raise StartupError(
            f"listener {listener} has OAUTHBEARER and no keys that verify tokens: set {_URL} to "
            "the https: or file: URL of a JSON Web Key Set"
        )
    keys = BearerKeys(
        _source(config, listener, str(url)),
        rules,
        clock=world.clock,
        loop=world.loop,
        read=ThreadReader(),
    )
    try:
        await keys.load()
    except KeysError as error:
        raise StartupError(f"listener {listener}: {_URL}: {error}") from None
    tasks.start(keys.run(), "keys of bearer tokens")
    return keys


def _source(config: BrokerConfig, listener: str, url: str) -> KeySource:
    number = partial(_number, config, listener)
    return KeySource(
        url,
        refresh_ms=number("jwks.endpoint.refresh.ms"),
        backoff_ms=number("jwks.endpoint.retry.backoff.ms"),
        backoff_ms_max=number("jwks.endpoint.retry.backoff.max.ms"),
    )


def _rules(config: BrokerConfig, listener: str) -> ClaimRules:
    def of(name: str) -> str:
        return str(config.for_listener(listener, _PREFIX + name))

    issuer = config.for_listener(listener, _PREFIX + "expected.issuer")
    audiences = config.for_listener(listener, _PREFIX + "expected.audience")
    return ClaimRules(
        issuer=None if issuer is None else str(issuer),
        audiences=frozenset(() if audiences is None else as_words(audiences)),
        skew_ms=_number(config, listener, "clock.skew.seconds") * 1000,
        scope_claim=of("scope.claim.name"),
        subject_claim=of("sub.claim.name"),
    )


def _number(config: BrokerConfig, listener: str, name: str) -> int:
    return as_number(config.for_listener(listener, _PREFIX + name), name)
