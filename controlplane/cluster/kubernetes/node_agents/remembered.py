"""``Remembered``: answers that never change, as many as there is room for."""

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class Remembered(Generic[V]):
    """Values by a key that always means the same; the one that was asked for least recently goes first.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[str, V] = OrderedDict()

    def get(self, key: str) -> V | None:
        """The value; None: it is not known any more."""
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: str, value: V) -> None:
        """Remembers a value."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def forget(self, key: str) -> None:
        """Forgets a value."""
        self._values.pop(key, None)
