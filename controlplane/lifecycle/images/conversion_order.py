"""The order in which images are converted, and which wish gives its place up where there are too many. Pure.

A wish that somebody waits for goes before all others, which get every ``TURNS``-th turn. Within each kind owners take
turns: next is the owner whose last turn, or whose coming where that is later, is the longest ago. So an owner waits for
one turn of each other owner at most, however many images these want.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

# Wishes that wait, of each kind.
MOST_WAITING: Final = 256
# Of so many turns one is of a wish that nobody waits for.
TURNS: Final = 4

T = TypeVar("T")


@dataclass(eq=False)
class Wish(Generic[T]):
    """What is wanted once, by one owner or several.

    Attributes:
        owners: the first one pays for its place.
    """

    what: T
    owners: list[str] = field(default_factory=list)


class ConversionOrder(Generic[T]):
    """Wishes by key.

    Args:
        awaited: whether somebody waits for one now.
        most: how many of each kind.
    """

    def __init__(self, awaited: Callable[[T], bool], most: int = MOST_WAITING) -> None:
        self._awaited = awaited
        self._most = most
        self._wishes: OrderedDict[str, Wish[T]] = OrderedDict()
        # Of each owner with wishes: the number of its last turn, or of the turn after which it came.
        self._since: dict[str, int] = {}
        self._served = 0
        self._turns = 0

    def __len__(self) -> int:
        return len(self._wishes)

    def __contains__(self, key: str) -> bool:
        return key in self._wishes

    def all(self) -> Sequence[T]:
        """What waits, in the order in which it came."""
        return [one.what for one in self._wishes.values()]

    def join(self, key: str, owner: str) -> None:
        """One more owner wants what waits already: it comes with the first of them that has its turn."""
        wish = self._wishes[key]
        if owner not in wish.owners:
            wish.owners.append(owner)
            self._since.setdefault(owner, self._served)

    def put(self, key: str, what: T, owners: Sequence[str]) -> Sequence[T]:
        """Adds a wish.

        Args:
            key: under which it does not wait yet.
            what: is wanted.
            owners: at least one.

        Returns:
            Those that have no place any more: the youngest of the owner with the most, or this one.
        """
        left = [*self._over()]
        if len(same := self._kind(awaited=self._awaited(what))) >= self._most:
            held = self._paid(same)
            if held[owners[0]] + 1 >= max(held.values()):
                return [*left, what]
            left.append(self._drop(self._youngest(same)))
        self._wishes[key] = Wish(what, [*owners])
        for owner in owners:
            self._since.setdefault(owner, self._served)
        return left

    def take(self) -> T | None:
        """Removes the next one; None: there is none."""
        if not self._wishes:
            return None
        self._turns += 1
        first = self._turns % TURNS != 0
        kind = self._kind(awaited=first) or self._kind(awaited=not first)
        # In the order in which their wishes came, which decides between equals.
        owners = dict.fromkeys(one for key in kind for one in self._wishes[key].owners)
        owner = min(owners, key=self._since.__getitem__)
        key = next(key for key in kind if owner in self._wishes[key].owners)
        self._served += 1
        for one in self._wishes[key].owners:
            self._since[one] = self._served
        return self._drop(key)

    def _over(self) -> Sequence[T]:
        """Removes what has become too much of one kind since somebody waits for it, or does not any more."""
        left = []
        for awaited in (True, False):
            while len(same := self._kind(awaited=awaited)) > self._most:
                left.append(self._drop(self._youngest(same)))
        return left

    def _paid(self, keys: Sequence[str]) -> Counter[str]:
        return Counter(self._wishes[one].owners[0] for one in keys)

    def _youngest(self, keys: Sequence[str]) -> str:
        """Of the owner with the most."""
        longest = self._paid(keys).most_common(1)[0][0]
        return next(one for one in reversed(keys) if self._wishes[one].owners[0] == longest)

    def _kind(self, *, awaited: bool) -> Sequence[str]:
        return [key for key, one in self._wishes.items() if self._awaited(one.what) is awaited]

    def _drop(self, key: str) -> T:
        what = self._wishes.pop(key).what
        here = {owner for one in self._wishes.values() for owner in one.owners}
        self._since = {owner: since for owner, since in self._since.items() if owner in here}
        return what
