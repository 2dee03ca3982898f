"""Wall time by what sandboxes do: at each moment it is divided evenly among those that there are. Pure.

So the parts add up to the wall time, whatever number of sandboxes does things at the same time: with 256 of them, a
second in which 64 wait for a create counts as a quarter of a second of that.
"""

from __future__ import annotations

from collections import Counter, defaultdict

NOTHING = "none"
"""The part of the wall time in which there is no sandbox."""

_MOST_BINS = 200
_FIRST_WIDTH_S = 0.05


class Shares:
    """Wall time by state, and how many sandboxes are in which state over the time.

    Args:
        begin_s: when the wall time begins; later times are of the same clock.
    """

    def __init__(self, begin_s: float) -> None:
        self._begin_s = self._last_s = begin_s
        self._counts: Counter[str] = Counter()
        self._spent_s: defaultdict[str, float] = defaultdict(float)
        self._width_s = _FIRST_WIDTH_S
        self._bins: list[defaultdict[str, float]] = []

    def move(self, at_s: float, before: str | None, after: str | None, count: int = 1) -> None:
        """Let sandboxes change their state.

        Args:
            at_s: when; a time before that of an earlier call counts as that.
            before: the state that they leave; None: they are new.
            after: the state that they enter; None: they are gone.
            count: how many.
        """
        self._advance(at_s)
        if before is not None:
            self._counts[before] -= count
            if self._counts[before] <= 0:
                del self._counts[before]
        if after is not None:
            self._counts[after] += count

    def spent_s(self, at_s: float) -> dict[str, float]:
        """Return the seconds by state until a time; they add up to the wall time."""
        self._advance(at_s)
        return dict(self._spent_s)

    def over_time(self, at_s: float) -> list[dict[str, float]]:
        """Return how many sandboxes were in each state, on average, in up to 200 parts of the wall time.

        Each part has `at_s`, when it begins, and the number by state. The last one may be shorter.
        """
        self._advance(at_s)
        found = []
        for number, spent in enumerate(self._bins):
            begins_s = number * self._width_s
            long_s = min(self._width_s, max(1e-9, self._last_s - self._begin_s - begins_s))
            found.append({"at_s": begins_s, **{state: sum_s / long_s for state, sum_s in spent.items()}})
        return found

    def _advance(self, at_s: float) -> None:
        took_s = at_s - self._last_s
        if took_s <= 0:
            return
        there = self._counts.total()
        for state, count in self._counts.items():
            self._spent_s[state] += took_s * count / there
        if not there:
            self._spent_s[NOTHING] += took_s
        self._fill_bins(self._last_s - self._begin_s, at_s - self._begin_s)
        self._last_s = at_s

    def _fill_bins(self, from_s: float, to_s: float) -> None:
        while to_s / self._width_s >= _MOST_BINS:
            for one, two in zip(self._bins[::2], self._bins[1::2], strict=False):
                for state, sum_s in two.items():
                    one[state] += sum_s
            self._bins, self._width_s = self._bins[::2], self._width_s * 2
        place = int(from_s / self._width_s)
        while from_s < to_s:
            until_s = min(to_s, (place + 1) * self._width_s)
            while len(self._bins) <= place:
                self._bins.append(defaultdict(float))
            for state, count in self._counts.items():
                self._bins[place][state] += max(0.0, until_s - from_s) * count
            from_s, place = until_s, place + 1
