"""The permission of a produce request as a whole: that for the transactional id of its records.

As in Apache Kafka the records decide, not the id that the request names. 1. A client without Write
on transactional id x has x's producer id and epoch. 2. It produces records of x's transaction in a
request without an id. 3. ... so the check of the named id alone would let it write into x's
transaction (CVE-2018-17196). A request that names an id and has no such records needs no permission
for it.
"""

from typing import Final

from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.record.batch import MAGIC, MAGIC_AT, TRANSACTIONAL_BIT
from odradek.wire.messages.produce import Produce

_ATTRIBUTES_AT: Final = 22  # the low byte of a batch's attributes
_BIT: Final = TRANSACTIONAL_BIT


def refuse_produce(session: Session, request: Produce) -> ErrorCode:
    """The error for all partitions; NONE if each has its own outcome."""
    if not has_transactional_records(request):
        return ErrorCode.NONE
    name = request.transactional_id
    if name is None or not session.authorize(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def has_transactional_records(request: Produce) -> bool:
    """Whether the first batch of a partition belongs to a transaction; it need not be valid."""
    for _, partitions in request.topics:
        for _, batch in partitions:
            if (
                batch
                and len(batch) > _ATTRIBUTES_AT
                and batch[_ATTRIBUTES_AT] & _BIT
                and batch[MAGIC_AT] == MAGIC  # otherwise these are messages of an old format
            ):
                return True
    return False
