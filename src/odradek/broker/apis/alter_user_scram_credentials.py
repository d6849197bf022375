"""AlterUserScramCredentials (51), version 0: credentials stored and deleted.

Behaviour:
    * Cluster Alter; else CLUSTER_AUTHORIZATION_FAILED, for each user.
    * Only the controller's broker stores them: NOT_CONTROLLER elsewhere, for each user.
    * Each user succeeds or fails as a whole. The request has a salted password, the store keys
      derived from it; 4096 to 16384 iterations are allowed.
    * A broker authenticates by the new credential when its notification has arrived there
      (`serving/scram_credentials.py`).
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from odradek.broker.admin.clients import ClientAdmin, check_scram, scram_credential
from odradek.broker.admin.topics import store_errors_answered
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

SLICE: Final = 20  # users, each with a key derivation, before others may run
_Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def alter_user_scram_credentials(
    admin: ClientAdmin,
    session: Session,
    request: AlterUserScramCredentialsRequest,
    *,
    is_controller: bool,
) -> AlterUserScramCredentialsResponse:
    response = AlterUserScramCredentialsResponse()
    users: dict[str, list[_Change]] = {}
    asked: list[_Change] = [*request.deletions, *request.upsertions]
    for change in asked:
        users.setdefault(change.name, []).append(change)
    for number, (user, changes) in enumerate(users.items(), 1):
        if number % SLICE == 0:
            await asyncio.sleep(0)
        outcome = AlterUserScramCredentialsResult(user=user, error_message=None)
        is_doubled = len({change.mechanism for change in changes}) < len(changes)
        try:
            _check(session, is_controller=is_controller, is_doubled=is_doubled)
            with store_errors_answered():
                await admin.alter_scram(user, _credentials(user, changes))
        except ApiError as error:
            outcome.error_code = error.code
            outcome.error_message = error.message
        response.results.append(outcome)
    return response


def _check(session: Session, *, is_controller: bool, is_doubled: bool) -> None:
    if not is_controller:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    session.check_cluster(AclOperation.ALTER)
    if is_doubled:
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )


def _credentials(user: str, changes: Sequence[_Change]) -> dict[int, str | None]:
    """A user's new credentials by mechanism; None: it is deleted.

    Raises:
        ApiError: a change is invalid.
    """
    credentials: dict[int, str | None] = {}
    for change in changes:
        if isinstance(change, ScramCredentialDeletion):
            check_scram(user, change.mechanism, None)
            credentials[change.mechanism] = None
        else:
            check_scram(user, change.mechanism, change.iterations)
            credentials[change.mechanism] = scram_credential(
                change.mechanism,
                bytes(change.salt),
                bytes(change.salted_password),
                change.iterations,
            )
    return credentials
