"""What each hand-made part gains, as records of ``make bench-lifecycle``."""

from __future__ import annotations

from statistics import median

from tests.bench.ab.turns import Way, rounds
from tests.bench.ab.ways import WAYS
from tests.bench.record import Baseline, Record, of_rounds

ROUNDS = 8
# Figure in ``turns`` -> its name here. Rates are told by ``saturation``: they spread too far to judge a part by.
FIGURES = {
    "CPU ms a claim": "CPU of the control plane for a claim and the start in its place",
    "CPU ms a warm create": "CPU of the control plane for a warm create, 50/s, and the start in its place",
    "CPU ms a cold create": "CPU of the control plane for a cold create, a herd of 100",
    "warm create p50 ms": "warm create through the SDK, 50/s, p50",
}
HOW = "one installation for each way, all on this machine, measured in turn; everything played but control plane, Redis"


async def measure() -> list[Record]:
    """The records of this scenario. Cost: five minutes."""
    ways = {"ours": Way(), "ours again": Way(), **{f"library {name}": Way(name) for name in WAYS}}
    seen = await rounds(ways, ROUNDS, ("claims", "warm", "herd"))
    ours = seen.pop("ours")
    return [
        Record(
            f"{name}, against {way}",
            median(ours[figure]),
            "ms",
            HOW,
            Baseline(way, median(theirs[figure]), of_rounds(theirs[figure])),
            distribution=of_rounds(ours[figure]),
        )
        for figure, name in FIGURES.items()
        for way, theirs in seen.items()
    ]
