"""Whose an image is: what an owner has committed, no other one starts, pulls or sees."""

from typing import Protocol

from controlplane.errors import Problem
from controlplane.images import is_foreign, parse


class Names(Protocol):
    """The part of ``Images`` that is asked."""

    def pulled(self, name: str) -> str:
        """The name under which an image is pulled."""
        ...


class Ownership:
    """Judges names of images.

    Args:
        place: below which images are that were committed; empty: none are.
        names: rewrites names.
    """

    def __init__(self, place: str, names: Names) -> None:
        self._place = place
        self._names = names

    def check(self, owner: str, name: str) -> None:
        """Refuses an image that is another owner's, also where a rewritten name leads to one. Cost: no call.

        Raises:
            Problem: permission_denied.
        """
        if any(is_foreign(self._place, owner, parse(one)) for one in (name, self._names.pulled(name))):
            raise Problem("permission_denied", f"{name} is an image that another owner has committed", image=name)

    def may_see(self, owner: str, name: str) -> bool:
        """Whether an image's name on a node may be told to an owner; one that nobody can name is not."""
        try:
            return not is_foreign(self._place, owner, parse(name))
        except ValueError:
            return False
