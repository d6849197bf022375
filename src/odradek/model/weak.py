"""References that do not keep their object: where two objects would keep each other.

Two objects that refer to each other are freed by the garbage collector only. A broker collects its
old objects once in a hundred million allocations (`broker/main.py`), which may take days.
"""

import weakref
from typing import Generic, TypeVar

T = TypeVar("T")


class Weak(Generic[T]):
    """The owner of an object, as that object refers to it."""

    __slots__ = ("_reference",)

    def __init__(self, owner: T) -> None:
        self._reference = weakref.ref(owner)

    def __call__(self) -> T:
        """The owner.

        Raises:
            ReferenceError: it is freed; the caller must be called by it, or hold it.
        """
        owner = self._reference()
        if owner is None:
            raise ReferenceError("the owner is freed")
        return owner
