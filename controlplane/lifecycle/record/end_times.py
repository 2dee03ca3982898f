"""When the sandboxes of each owner ended and by which cause, as this replica has heard: for the console. Pure."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controlplane.errors import Code
from controlplane.lifecycle.record.transition import Transition

# As long as tombstones are kept: a restart finds these ends again.
KEPT_MS: Final = 24 * 3_600_000
STEP_MS: Final = 20 * 60_000
STEPS: Final = KEPT_MS // STEP_MS
# Ends that are remembered, of all owners: as many as there are tombstones. Of more than that the oldest steps go.
MOST_ENDS: Final = 86_400


@dataclass(slots=True)
class _Step:
    """Ends within one step of time.

    Attributes:
        ids: of those that are counted: transitions are heard of twice, and all of a day again after a reconnect.
    """

    ids: set[str] = field(default_factory=set)
    causes: dict[str, Counter[Code]] = field(default_factory=lambda: defaultdict(Counter))


@dataclass(frozen=True, slots=True)
class EndedIn:
    """Ends within one step of ``STEP_MS``, by cause.

    Attributes:
        from_ms: when the step begins (Unix ms).
    """

    from_ms: int
    causes: Mapping[Code, int]


class EndTimes:
    """Follows all transitions. Cost: O(1) for each, O(steps) for each question; an id for each end of the last day."""

    def __init__(self) -> None:
        self._steps: OrderedDict[int, _Step] = OrderedDict()
        self._newest = 0
        self._count = 0

    def on(self, transition: Transition) -> None:
        """Takes a transition in, made here or elsewhere; ends of unclaimed sandboxes are nobody's."""
        after = transition.after
        if after.end is None or after.unclaimed:
            return
        number = after.end.at_ms // STEP_MS
        if number <= self._newest - STEPS:
            return
        self._newest = max(self._newest, number)
        step = self._steps.setdefault(number, _Step())
        if after.id not in step.ids:
            step.ids.add(after.id)
            step.causes[after.owner][after.end.cause] += 1
            self._count += 1
        for old in sorted(self._steps)[:-1]:
            if old > self._newest - STEPS and self._count <= MOST_ENDS:
                break
            self._count -= len(self._steps.pop(old).ids)

    def of(self, owner: str, now_ms: int) -> Sequence[EndedIn]:
        """The ends of an owner's sandboxes in the last day, oldest first, a step for each ``STEP_MS``."""
        last = now_ms // STEP_MS
        return [
            EndedIn(number * STEP_MS, self._steps[number].causes.get(owner, {}) if number in self._steps else {})
            for number in range(last - STEPS + 1, last + 1)
        ]
