"""The secret from which the brokers of a cluster derive the SCRAM salts of unknown users.

It is stored, so that an unknown user gets the same salt after a restart and from every broker: a
salt that changes would show that the user does not exist.
"""

import logging
import secrets
from contextlib import suppress

from odradek.coord.layout_odradek import (
    DECOY_SECRET_BYTES,
    DECOYS,
    decode_decoy_secret,
    encode_decoy_secret,
)
from odradek.coord.store import BadVersionError, NodeExistsError, NoNodeError, Store
from odradek.coord.znode import CorruptNodeError

log = logging.getLogger(__name__)


async def decoy_secret(store: Store) -> bytes:
    """The stored secret, which the first broker that needs it draws.

    Raises:
        StoreError: the store does not answer.
    """
    while True:
        drawn = encode_decoy_secret(secrets.token_bytes(DECOY_SECRET_BYTES))
        try:
            data, stat = await store.get(DECOYS)
        except NoNodeError:
            with suppress(NodeExistsError):
                await store.create(DECOYS, drawn, make_parents=True)
            continue
        try:
            return decode_decoy_secret(data)
        except CorruptNodeError as error:
            log.warning("%s: another secret is stored", error)
        with suppress(BadVersionError, NoNodeError):
            await store.set_data(DECOYS, drawn, stat.version)
