"""AlterUserScramCredentials (51), version 0: credentials stored and deleted.

Behaviour:
    * Cluster Alter; else CLUSTER_AUTHORIZATION_FAILED, for each user.
    * Only the controller's broker stores them: NOT_CONTROLLER elsewhere, for each user.
    * Each user succeeds or fails as a whole. What is sent is a salted password, what is stored
      are keys made of it; the iterations are from 4096 to 16384.
    * They are stored and told; this version lets nobody log in with them.
"""

from collections import Counter

from odradek.broker.admin.clients import ClientAdmin, check_scram, scram_credential
from odradek.broker.admin.topics import store_errors_told
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def alter_user_scram_credentials(
    admin: ClientAdmin,
    session: Session,
    request: AlterUserScramCredentialsRequest,
    *,
    is_controller: bool,
) -> AlterUserScramCredentialsResponse:
    """Answer for every user."""
    response = AlterUserScramCredentialsResponse()
    changes = [(deletion.name, deletion.mechanism) for deletion in request.deletions]
    changes += [(new.name, new.mechanism) for new in request.upsertions]
    doubled = {user for (user, _), times in Counter(changes).items() if times > 1}
    for user in dict.fromkeys(user for user, _ in changes):
        told = AlterUserScramCredentialsResult(user=user, error_message=None)
        try:
            _check(session, is_controller=is_controller, is_doubled=user in doubled)
            with store_errors_told():
                await admin.alter_scram(user, _credentials(request, user))
        except ApiError as error:
            told.error_code = error.code
            told.error_message = error.message
        response.results.append(told)
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


def _credentials(request: AlterUserScramCredentialsRequest, user: str) -> dict[int, str | None]:
    """What becomes of a user's credentials, by mechanism.

    Raises:
        ApiError: one that there cannot be.
    """
    credentials: dict[int, str | None] = {}
    for deletion in request.deletions:
        if deletion.name == user:
            check_scram(user, deletion.mechanism, None)
            credentials[deletion.mechanism] = None
    for new in request.upsertions:
        if new.name == user:
            check_scram(user, new.mechanism, new.iterations)
            credentials[new.mechanism] = scram_credential(
                new.mechanism, bytes(new.salt), bytes(new.salted_password), new.iterations
            )
    return credentials
