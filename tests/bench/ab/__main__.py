"""Ways of the control plane in turn; prints medians, ranges and the medians of each round's ratio to the first way.

python -m tests.bench.ab ours= again= routes=routes both=routes,parser     parts that are the library's
python -m tests.bench.ab ours= before=/a/checkout                          another commit's
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Mapping
from pathlib import Path

from tests.bench.ab.turns import STEPS, Way, rounds


def way(text: str) -> tuple[str, Way]:
    """Reads NAME=PART,PART or NAME=/CHECKOUT."""
    name, _, what = text.partition("=")
    return name, Way(checkout=Path(what)) if what.startswith("/") else Way(what)


def table(seen: Mapping[str, Mapping[str, list[float]]]) -> str:
    """One line for each figure and way."""
    lines = []
    first = next(iter(seen.values()))
    for figure, base in first.items():
        lines.append(figure)
        for name, figures in seen.items():
            values = figures[figure]
            ratios = sorted(one / other for one, other in zip(values, base, strict=True))
            quarter = len(ratios) // 4
            lines.append(
                f"   {name:12} {statistics.median(values):8.3f} ({min(values):.3f} to {max(values):.3f}), "
                f"ratio {statistics.median(ratios):.3f} (quartiles {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})"
            )
    return "\n".join(lines)


def main() -> None:
    """Runs the ways that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("ways", nargs="+", type=way)
    options = parser.parse_args()
    print(table(asyncio.run(rounds(dict(options.ways), options.rounds, options.steps.split(",")))))


if __name__ == "__main__":
    main()
