"""AlterUserScramCredentials (51): SCRAM credentials set or deleted."""

from odradek.wire.schema import Buffer, Message, array, bytes_, int8, int16, int32, string


class ScramCredentialDeletion(Message):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Message):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: Buffer = bytes_()
    salted_password: Buffer = bytes_()


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Message):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
