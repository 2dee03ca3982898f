"""The report of a run as data. Pure: of what a recorder has counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from rollbox.recording.recorder import Recorder, SlowCreate
from rollbox.recording.tails import Tail
from rollbox.report import words
from rollbox.timeline import Timeline

# The durations that `numbers` has; the rest is in `tails`.
_HEADLINES = ("create.warm", "create.cold", "create.failed", "exec")


@dataclass(frozen=True, slots=True)
class SlowSandbox:
    """One of the slowest creates of a run, with its reasons.

    Attributes:
        took_ms: until it was ready, or had failed.
        sandbox_id: "" where the failure named none.
        image: of the create.
        source: "warm", "cold", or the code of its failure.
        why: what took longest, in one sentence.
        parts_ms: its phases, which add up to `took_ms`.
        timeline: the platform's; None where it was not asked or had none.
    """

    took_ms: float
    sandbox_id: str
    image: str
    source: str
    why: str
    parts_ms: dict[str, float]
    timeline: Timeline | None = None

    @classmethod
    def of(cls, create: SlowCreate) -> SlowSandbox:
        """Say what took longest in a create."""
        name, longest_ms = max(create.parts_ms.items(), key=lambda part: part[1], default=("call", create.took_ms))
        told = f"{words.of(f'create.{name}')}: {words.duration(longest_ms)} of {words.duration(create.took_ms)}"
        why = f"{told}; cold: {create.cold_reason}" if create.cold_reason else told
        return cls(create.took_ms, create.sandbox_id, create.image, create.source, why, create.parts_ms)

    def with_timeline(self, timeline: Timeline) -> SlowSandbox:
        """Return it with its timeline, and what the platform was waiting for longest until it was ready."""
        started = [one for one in timeline.moments if one.state not in ("ending", "ended")]
        longest = max(started, key=lambda one: one.after_ms, default=None)
        told = f"; longest before: {longest.text} (+{words.duration(longest.after_ms)})" if longest else ""
        return replace(self, timeline=timeline, why=self.why + told)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run has done, as its client saw it.

    Attributes:
        name: of the run.
        began_at_ms: Unix time.
        wall_s: how long it ran, or has run so far.
        creates: how many were "warm", "cold", "failed" or "cancelled".
        cold_reasons: why cold, as far as pools are concerned.
        spent_s: the wall time by what sandboxes did; adds up to `wall_s`. See `rollbox.report.words` for the names.
        tails: distributions by name: create.warm, create.cold and its phases, create.failed, exec and its phases.
        execs: how commands ended: "exited" (with 0), "non-zero", "deadline", ...; and how many were "spawned".
        failures: what failed ("create" or "call"), with code, fault, whether it masks the sample, and how often.
        ends: how the sandboxes ended that the run has deleted: cause, fault, whether it masks, how many.
        masked: samples to leave out, by code: creates and sandboxes, each counted once.
        rollouts: outcomes of batches: "finished", "cancelled", or a code.
        live: sandboxes that the run has not deleted.
        over_time: how many sandboxes did what, on average, in up to 200 parts of the wall time.
        slowest: the ten slowest creates, slowest first.
        missing: why timelines of these are missing; "" when none is.
    """

    name: str
    began_at_ms: int
    wall_s: float
    creates: dict[str, int]
    cold_reasons: dict[str, int]
    spent_s: dict[str, float]
    tails: dict[str, Tail]
    execs: dict[str, int]
    failures: tuple[dict[str, Any], ...]
    ends: tuple[dict[str, Any], ...]
    masked: dict[str, int]
    rollouts: dict[str, int]
    live: int
    over_time: tuple[dict[str, float], ...]
    slowest: tuple[SlowSandbox, ...]
    missing: str = ""

    @classmethod
    def of(cls, recorder: Recorder) -> Self:
        """Summarize what was counted so far; without timelines."""
        return cls(
            name=recorder.name,
            began_at_ms=recorder.began_at_ms,
            wall_s=recorder.wall_s,
            creates=_sorted(recorder.creates),
            cold_reasons=_sorted(recorder.cold_reasons),
            spent_s=cls.in_order(recorder.spent_s()),
            tails={name: one.tail() for name, one in sorted(recorder.durations.items())},
            execs=_sorted(recorder.execs),
            failures=tuple({**kind._asdict(), "count": count} for kind, count in recorder.failures.most_common()),
            ends=tuple({**kind._asdict(), "count": count} for kind, count in recorder.ends.most_common()),
            masked=_sorted(recorder.masked),
            rollouts=_sorted(recorder.rollouts),
            live=recorder.live,
            over_time=tuple(recorder.over_time()),
            slowest=tuple(SlowSandbox.of(one) for one in sorted(recorder.slowest, reverse=True)),
        )

    @staticmethod
    def in_order(spent_s: Mapping[str, float]) -> dict[str, float]:
        """Put parts of a wall time in the order of a run; those that this version does not know come last."""
        known = [*words.WORDS]
        return dict(sorted(spent_s.items(), key=lambda one: known.index(one[0]) if one[0] in known else len(known)))

    def with_timelines(self, timelines: Mapping[str, Timeline], missing: str) -> Self:
        """Return the report with the timelines of its slowest sandboxes, by id."""
        slowest = tuple(
            one.with_timeline(timelines[one.sandbox_id]) if one.sandbox_id in timelines else one for one in self.slowest
        )
        return replace(self, slowest=slowest, missing=missing)

    def numbers(self) -> dict[str, float]:
        """Return the report as plain numbers with flat names, for any logger: `wandb.log(report.numbers())`."""
        found: dict[str, float] = {"wall_s": self.wall_s, "sandboxes_live": self.live}
        found |= {f"creates_{name}": self.creates.get(name, 0) for name in ("warm", "cold", "failed", "cancelled")}
        found["execs"] = self.tails["exec"].count if "exec" in self.tails else 0
        found["samples_masked"] = sum(self.masked.values())
        for fault in ("caller", "workload", "capacity", "platform"):
            found[f"failures_{fault}"] = sum(one["count"] for one in self.failures if one["fault"] == fault)
            found[f"ends_{fault}"] = sum(one["count"] for one in self.ends if one["fault"] == fault)
        for name in _HEADLINES:
            if (tail := self.tails.get(name)) is not None:
                flat = name.replace(".", "_")
                found |= {f"{flat}_{one}_ms": getattr(tail, f"{one}_ms") for one in ("p50", "p90", "p99", "max")}
        return found | {f"spent_{name.replace('.', '_')}_s": spent_s for name, spent_s in self.spent_s.items()}

    def to_json(self) -> dict[str, Any]:
        """Write all of it as JSON."""
        return asdict(self)


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])) if count}
