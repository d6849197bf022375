"""UpdateFeatures (57), versions 0-1: refused, as by a broker in ZooKeeper mode.

Behaviour:
    * Only the controller's broker: NOT_CONTROLLER elsewhere.
    * Cluster Alter; else CLUSTER_AUTHORIZATION_FAILED.
    * INVALID_REQUEST for each feature: there is no feature that could be set to a level or
      deleted.

Versions:
    v1  upgrade types, validation only
"""

from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


def update_features(
    session: Session, request: UpdateFeaturesRequest, *, is_controller: bool
) -> UpdateFeaturesResponse:
    """The error for each feature."""
    try:
        session.check_cluster(AclOperation.ALTER)
        _check(request, is_controller=is_controller)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=update.feature,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="Can not delete non-existing finalized feature."
                if update.max_version_level < 1
                else "Could not apply finalized feature update because the provided feature is "
                "not supported.",
            )
            for update in request.feature_updates
        ],
    )


def _check(request: UpdateFeaturesRequest, *, is_controller: bool) -> None:
    if not is_controller:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    if not request.feature_updates:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Can not provide empty FinalizedFeatureUpdates")
