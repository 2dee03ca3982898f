"""What the processes of a simulation use of the machine, sampled from /proc."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

EVERY_S = 2.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Used:
    """Of one part: processor time since it began, and resident memory now."""

    cpu_s: float
    resident_bytes: int


@dataclass
class Samples:
    """One line a moment.

    Attributes:
        began_s: the monotonic moment from which `at_s` counts.
        rows: moment, live sandboxes, what each part uses.
    """

    began_s: float = field(default_factory=time.monotonic)
    rows: list[tuple[float, int, dict[str, Used]]] = field(default_factory=list)
    # What processes have used that are gone: another one has taken their place.
    before: dict[str, float] = field(default_factory=dict)

    def latest(self) -> dict[str, Used]:
        """What each part uses, as sampled last."""
        return self.rows[-1][2] if self.rows else {}

    def now_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began_s

    async def take(self, pids: Callable[[], Mapping[str, int]], live: Callable[[], int]) -> None:
        """Sample until cancelled.

        Args:
            pids: the processes now, by their parts' names.
            live: how many sandboxes live now.
        """
        last: dict[str, tuple[int, Used]] = {}
        while True:
            row: dict[str, Used] = {}
            for name, pid in pids().items():
                if (used := used_by(pid)) is None:
                    continue
                if name in last and last[name][0] != pid:
                    self.before[name] = self.before.get(name, 0.0) + last[name][1].cpu_s
                last[name] = (pid, used)
                row[name] = Used(used.cpu_s + self.before.get(name, 0.0), used.resident_bytes)
            self.rows.append((self.now_s(), live(), row))
            await asyncio.sleep(EVERY_S)


def between(before: Mapping[str, Used], after: Mapping[str, Used]) -> dict[str, float]:
    """Processor seconds by part."""
    return {name: one.cpu_s - before[name].cpu_s if name in before else one.cpu_s for name, one in after.items()}


def used_by(pid: int) -> Used | None:
    """What a process uses, with all its threads; None: it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None
    return Used((int(fields[11]) + int(fields[12])) / _TICKS, pages * _PAGE)
