"""What `validate` of a state machine raises, and how it is written."""


class InvariantError(AssertionError):
    """The state contradicts itself; the message names the thing and the rule that is broken."""


def hold(condition: bool, subject: object, rule: str, *values: object) -> None:
    """Check one rule. Its `values` are formatted with %, and only if it does not hold.

    Raises:
        InvariantError: it does not hold.
    """
    if not condition:
        raise InvariantError(f"{subject}: {rule % values if values else rule}")
