"""``Lost``: machines that name a node which is not to be waited for any more. Pure. In Unix ms."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from controlplane.scaling.seen import Machine


@dataclass(slots=True)
class _Named:
    """A machine that names a node: since when, and whether that has been Ready."""

    since_ms: int
    came: bool = False


class Lost:
    """The past of the machines of one node pool.

    Attributes:
        ids: the lost ones: their node was Ready and is gone, or has not been Ready in time, or they have failed.
        trouble: why one that never came is lost since the last look; empty: none is.
    """

    def __init__(self) -> None:
        self.ids: frozenset[str] = frozenset()
        self.trouble = ""
        self._named: dict[str, _Named] = {}

    def see(
        self, machines: Sequence[Machine], nodes: Set[str], came: Set[str], within_s: int, now_ms: int
    ) -> frozenset[str]:
        """Takes in the machines, and returns the ids of the lost ones.

        Args:
            machines: those of the pool.
            nodes: the pool's nodes that there are.
            came: of these, the ones that have been Ready.
            within_s: how long a node may take once its machine names it.
            now_ms: the time.
        """
        self._named = {one.id: self._named.get(one.id, _Named(now_ms)) for one in machines if one.node}
        lost: set[str] = set()
        self.trouble = ""
        for one in (one for one in machines if one.node):
            named = self._named[one.id]
            named.since_ms = min(named.since_ms, now_ms)
            named.came = named.came or one.node in came
            failed = one.failed if one.node not in nodes else ""
            late = f"{one.node} was not Ready within {within_s} s" if now_ms - named.since_ms >= 1000 * within_s else ""
            if one.node in came or not (named.came or failed or late):
                continue
            lost.add(one.id)
            if not named.came and one.id not in self.ids:
                self.trouble = f"{one.id}: {failed or late}"
        self.ids = frozenset(lost)
        return self.ids
