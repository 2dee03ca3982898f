"""What a benchmark has measured, as data. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rollbox.bench.sample import Sample

# Whose fault decides the exit code, the first that there is.
_FAULTS = ("platform", "capacity", "workload", "caller")


@dataclass(frozen=True, slots=True)
class Series:
    """One distribution.

    Attributes:
        name: what was called.
        sample: what it took.
        note: how.
        wanted: how many calls there would have been with more time; 0: as many as there were.
        megabytes: what each call moved; 0: nothing that counts.
        part: its calls are in another distribution of the scenario, too.
    """

    name: str
    sample: Sample
    note: str = ""
    wanted: int = 0
    megabytes: float = 0.0
    part: bool = False

    @property
    def made(self) -> int:
        """How many calls were made."""
        return self.sample.count + sum(self.sample.failed.values())

    def to_json(self) -> dict[str, Any]:
        """Write it as JSON."""
        told = {"name": self.name, "note": self.note, "wanted": max(self.wanted, self.made)}
        return {**told, "megabytes": self.megabytes, "part": self.part, **self.sample.to_json()}


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of one scenario.

    Attributes:
        name: of the scenario.
        says: what it does.
        series: its distributions, the baseline last; empty where it was left out or broke.
        missing: why there is nothing, or no baseline; "" when nothing is missing.
        fault: whose, where the scenario broke.
    """

    name: str
    says: str
    series: tuple[Series, ...] = ()
    missing: str = ""
    fault: str = ""

    def to_json(self) -> dict[str, Any]:
        """Write it as JSON."""
        told = {"name": self.name, "says": self.says, "missing": self.missing}
        return {**told, "series": [one.to_json() for one in self.series]}


@dataclass(frozen=True, slots=True)
class BenchReport:
    """What a benchmark has measured, where, and how to do it again.

    Attributes:
        run: the value of the label `rollbox.run` that its sandboxes had.
        began_at_ms: Unix time.
        took_s: all of it.
        platform: what the installation says of itself, and its nodes, where the key may ask for them.
        client: versions and hardware of the machine that has measured.
        conditions: what else a reader has to know, by name.
        repeat: the command line.
        scenarios: in the order in which they were run.
        left: sandboxes of the run that could not be deleted.
    """

    run: str
    began_at_ms: int
    took_s: float
    platform: dict[str, str]
    client: dict[str, str]
    conditions: dict[str, str]
    repeat: str
    scenarios: tuple[Measured, ...] = field(default_factory=tuple)
    left: int = 0

    @property
    def fault(self) -> str:
        """Whose fault the worst failure was; "" where nothing has failed."""
        faults = {fault for one in self.scenarios for series in one.series for _, fault in series.sample.failed}
        samples = [series.sample for one in self.scenarios for series in one.series]
        # The end of the time cuts off some calls of a loop that works; where none has had an answer, it does not work.
        silent = any(one.unfinished and not one.took_ms for one in samples)
        faults |= {one.fault for one in self.scenarios} | ({"platform"} if self.left or silent else set())
        return next((fault for fault in _FAULTS if fault in faults), "")

    def to_json(self) -> dict[str, Any]:
        """Write all of it as JSON."""
        told = {name: value for name, value in asdict(self).items() if name != "scenarios"}
        return {**told, "scenarios": [one.to_json() for one in self.scenarios]}
