"""What the test kit raises when a verb cannot be carried out."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from odradek.config.broker import ConfigConflictError
from odradek.config.option import InvalidConfigError
from odradek.local.directory import LocalError
from odradek.model.errors import OdradekError

P = ParamSpec("P")
T = TypeVar("T")


class KitError(OdradekError):
    """A verb of the kit cannot be carried out; the message has the reason, and what to do."""


def verb(method: Callable[P, T]) -> Callable[P, T]:
    """A method that a test calls: its errors are KitErrors, and pytest shows the test's line.

    The frames of the kit, and of the thread on which its brokers run, explain nothing that the
    message does not say. Other exceptions keep them: they are mistakes of the kit or the broker.
    """

    @wraps(method)
    def explained(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return method(*args, **kwargs)
        except KitError as error:
            raise error.with_traceback(None) from None
        except (LocalError, InvalidConfigError, ConfigConflictError) as error:
            raise KitError(str(error)) from None

    return explained
