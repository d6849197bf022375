"""SCRAM users of a cluster on this machine, in its coordination store, without a broker."""

import asyncio
import hashlib
import hmac
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from odradek.broker.admin.clients import MECHANISMS, ClientAdmin, scram_credential
from odradek.broker.cluster.store_update import read
from odradek.broker.cluster.stores import store_of
from odradek.client.admin.security import SCRAM_ITERATIONS_MIN, SCRAM_MECHANISMS
from odradek.client.admin.security import scram_credential as salted
from odradek.config.broker import BrokerConfig
from odradek.coord.layout_config import ConfigEntity, decode_config
from odradek.coord.store import Store
from odradek.local.client_files import SaslUser
from odradek.net.clock import RealClock
from odradek.security.sasl.scram import SCRAM_HASHES, CredentialError, derive, parse_credential


@asynccontextmanager
async def opened_store(config: BrokerConfig) -> AsyncIterator[Store]:
    """A session with the store of a broker's configuration, closed at the end of the block.

    Raises:
        StartupError: the store cannot be used.
    """
    store = store_of(config, RealClock(), asyncio.get_running_loop(), random.Random())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def set_password(store: Store, login: SaslUser) -> None:
    """Store the credential of a password; the user may exist."""
    number = SCRAM_MECHANISMS[login.mechanism]
    made = salted(login.mechanism, login.password, SCRAM_ITERATIONS_MIN)
    text = scram_credential(number, made.salt, made.salted_password, made.iterations)
    await ClientAdmin(store).alter_scram(login.name, {number: text})


async def has_password(store: Store, login: SaslUser) -> bool:
    """Whether the store has the credential of this user and this password."""
    path = ConfigEntity((("users", login.name),)).path
    text = decode_config(path, await read(store, path)).get(login.mechanism)
    if text is None:
        return False
    try:
        held = parse_credential(login.mechanism, text)
    except CredentialError:
        return False
    salted_password = hashlib.pbkdf2_hmac(
        SCRAM_HASHES[login.mechanism], login.password.encode(), held.salt, held.iterations
    )
    made = derive(login.mechanism, held.salt, salted_password, held.iterations)
    return hmac.compare_digest(made.stored_key, held.stored_key)


async def users(store: Store) -> dict[str, list[str]]:
    """The mechanisms of each user with a credential."""
    admin = ClientAdmin(store)
    return {
        user: [MECHANISMS[number] for number, _ in await admin.describe_scram(user)]
        for user in await admin.users_with_scram()
    }


async def remove_user(store: Store, user: str) -> None:
    """Delete all credentials of a user.

    Raises:
        ApiError: the user has none.
    """
    admin = ClientAdmin(store)
    await admin.alter_scram(user, {number: None for number, _ in await admin.describe_scram(user)})
