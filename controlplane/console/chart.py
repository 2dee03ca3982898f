"""Ends over time as rectangles. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.console.words import moment, number
from controlplane.errors import TABLE, Code
from controlplane.lifecycle.record.end_times import EndedIn

# From the axis upwards; a delete by the owner is how sandboxes normally end, and has a strip of its own.
FAULTS: Final = ("platform", "capacity", "workload", "caller")
NORMAL: Final[Code] = "deleted"
WIDE, HIGH, STRIP = 720, 120, 24
# So that one end in thousands is seen.
LEAST: Final = 2.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle, its class and what it says when pointed at."""

    x: float
    y: float
    wide: float
    high: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class CauseRow:
    """How often a cause has ended sandboxes."""

    cause: str
    fault: str
    count: str
    masked: bool


@dataclass(frozen=True, slots=True)
class EndsChart:
    """The ends of a day.

    Attributes:
        bars: by fault, without deletes.
        deleted: the strip of deletes below.
        most: the highest bar's count, and that of the strip.
        causes: the most frequent first.
    """

    bars: Sequence[Bar]
    deleted: Sequence[Bar]
    most: int
    most_deleted: int
    by_fault: Sequence[tuple[str, str]]
    causes: Sequence[CauseRow]

    @classmethod
    def of(cls, steps: Sequence[EndedIn]) -> "EndsChart":
        """Draws the steps, which are of the same length, from left to right."""
        wide = WIDE / max(1, len(steps))
        faults = [_by_fault(step) for step in steps]
        most = max((sum(one.values()) for one in faults), default=0)
        most_deleted = max((step.causes.get(NORMAL, 0) for step in steps), default=0)
        bars, deleted, total = list[Bar](), list[Bar](), Counter[Code]()
        for place, (step, counts) in enumerate(zip(steps, faults, strict=True)):
            total.update(step.causes)
            bars += _stacked(place * wide, wide - 1, counts, most, step.from_ms)
            if count := step.causes.get(NORMAL, 0):
                high = max(LEAST, STRIP * count / most_deleted)
                title = f"{number(count)} deleted by their owner, from {moment(step.from_ms)}"
                deleted.append(Bar(round(place * wide, 2), STRIP - high, wide - 1, high, "normal", title))
        summed = Counter(fault for cause in total.elements() if cause != NORMAL for fault in (TABLE[cause].fault,))
        told = [(fault, number(summed[fault])) for fault in FAULTS]
        causes = [
            CauseRow(cause, TABLE[cause].fault, number(count), TABLE[cause].mask_sample and cause != NORMAL)
            for cause, count in total.most_common()
        ]
        return cls(bars, deleted, most, most_deleted, [*told, ("normal", number(total[NORMAL]))], causes)


def _by_fault(step: EndedIn) -> Counter[str]:
    counts = Counter[str]()
    for cause, count in step.causes.items():
        if cause != NORMAL:
            counts[TABLE[cause].fault] += count
    return counts


def _stacked(x: float, wide: float, counts: Counter[str], most: int, from_ms: int) -> list[Bar]:
    found, bottom = list[Bar](), float(HIGH)
    for fault in FAULTS:
        if count := counts[fault]:
            high = max(LEAST, HIGH * count / most)
            bottom = max(0.0, bottom - high)
            title = f"{number(count)} by fault of {fault}, from {moment(from_ms)}"
            found.append(Bar(round(x, 2), round(bottom, 2), round(wide, 2), round(high, 2), fault, title))
    return found
