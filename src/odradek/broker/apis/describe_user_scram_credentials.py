"""DescribeUserScramCredentials (50), version 0: mechanisms and iterations, never secrets.

Behaviour:
    * Cluster Describe; else CLUSTER_AUTHORIZATION_FAILED, for each user that is named as well.
    * Null, or no user at all: all users with credentials.
    * RESOURCE_NOT_FOUND for a user without; DUPLICATE_RESOURCE for one that is named twice.
"""

from collections import Counter

from odradek.broker.admin.clients import ClientAdmin
from odradek.broker.admin.topics import store_errors_answered
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def describe_user_scram_credentials(
    admin: ClientAdmin, session: Session, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    response = DescribeUserScramCredentialsResponse(error_message=None)
    try:
        session.check_cluster(AclOperation.DESCRIBE)
        times = Counter(user.name for user in request.users or ())
        with store_errors_answered():
            users = list(times) or await admin.users_with_scram()
            for user in users:
                response.results.append(await _describe(admin, user, times[user]))
    except ApiError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=error.code,
            error_message=error.message,
            results=[
                DescribeUserScramCredentialsResult(  # without its name, as from Kafka
                    error_code=error.code, error_message=error.message
                )
                for _ in request.users or ()
            ],
        )
    return response


async def _describe(
    admin: ClientAdmin, user: str, times: int
) -> DescribeUserScramCredentialsResult:
    outcome = DescribeUserScramCredentialsResult(user=user, error_message=None)
    try:
        _check_once(user, times)
        outcome.credential_infos = [
            CredentialInfo(mechanism=mechanism, iterations=iterations)
            for mechanism, iterations in await admin.describe_scram(user)
        ]
    except ApiError as error:
        outcome.error_code = error.code
        outcome.error_message = error.message
    return outcome


def _check_once(user: str, times: int) -> None:
    if times > 1:
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: "
            f"{user}",
        )
