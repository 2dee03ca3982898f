"""Fire every alert by an injected fault on the real stack, and see it end with the fault; build/alerts/alerts.md.

python -m tests.observability.firing             all faults, one after the other
python -m tests.observability.firing NAME...     these

Rules: the chart's, every duration in them divided (``hasty``). Exits with 1 when one that a fault must fire did not, or
did not end with it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.observability.firing.fault import Fault
from tests.observability.firing.faults import FAULTS
from tests.observability.firing.hasty import FACTOR
from tests.observability.firing.site import Site, opened
from tests.support.installed import ROOT

TABLE = ROOT / "build/alerts/alerts.md"
FIRES_WITHIN_S, ENDS_WITHIN_S = 240.0, 300.0
LOOKS_S = 0.3


@dataclass(frozen=True)
class Row:
    """An alert of a fault: seconds from the fault until it fired, and from its end until that was over; None: never."""

    alert: str
    words: str
    fired_s: float | None
    ended_s: float | None

    @property
    def good(self) -> bool:
        return self.fired_s is not None and self.ended_s is not None


async def tried(site: Site, fault: Fault) -> list[Row]:
    """Injects a fault until all its alerts have fired, and waits until they are over.

    A fault that cannot be injected, or not be taken back, is told and counts as missed: the other ones are tried too.
    """
    fired: dict[str, float] = {}
    began_s = time.monotonic()
    try:
        async with fault.inject(site):
            fired = await _seen(site, fault.alerts, lambda alert, now: alert in now, began_s, FIRES_WITHIN_S)
    except Exception:
        print(f"this fault broke off: {fault.words}", traceback.format_exc(), sep="\n", flush=True)
        return [Row(one, fault.words, fired.get(one), None) for one in fault.alerts]
    over_s = time.monotonic()
    ended = await _seen(site, fired, lambda alert, now: alert not in now, over_s, ENDS_WITHIN_S)
    return [Row(one, fault.words, fired.get(one), ended.get(one)) for one in fault.alerts]


async def _seen(
    site: Site, alerts: Iterable[str], look: Callable[[str, set[str]], bool], since_s: float, within_s: float
) -> dict[str, float]:
    """Of alerts, how long after a moment each was seen so for the first time; without those that were not in time."""
    missing, found = set(alerts), {}
    while missing and time.monotonic() < since_s + within_s:
        now = await site.firing()
        for one in [one for one in missing if look(one, now)]:
            found[one] = time.monotonic() - since_s
            missing.discard(one)
        await asyncio.sleep(LOOKS_S)
    return found


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown."""
    lines = [f"| {one.alert} | {one.words} | {_said(one.fired_s)} | {_said(one.ended_s)} |" for one in rows]
    return "\n".join(["| alert | fault | fired after | over after |", "|---|---|---|---|", *lines, ""])


def _said(seconds: float | None) -> str:
    return "not in time" if seconds is None else f"{seconds:.0f} s"


async def _all(names: list[str]) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="rollbox-alerts-") as folder:
        async with opened(Path(folder)) as site:
            early = await site.firing()
            print(f"before any fault: {', '.join(sorted(early)) or 'no alert fires'}", flush=True)
            for name in names:
                made = await tried(site, FAULTS[name])
                print(table(made), flush=True)
                rows += made
    return rows


def main(words: list[str]) -> int:
    """Tries the faults; the exit code."""
    if unknown := set(words) - FAULTS.keys():
        print(f"no faults: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    rows = asyncio.run(_all(words or list(FAULTS)))
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(table(rows))
    print(f"every duration of the rules was divided by {FACTOR}; {TABLE.relative_to(ROOT)}")
    return 0 if all(one.good for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
