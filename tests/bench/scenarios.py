"""What all verbs that measure do with their scenarios."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rich.console import Console

from tests.bench.record import Record, save
from tests.bench.table import table


async def measured(
    prefix: str,
    scenarios: Mapping[str, Callable[[], Awaitable[list[Record]]]],
    names: Sequence[str],
    versions: Mapping[str, str],
) -> int:
    """Run the named scenarios, all when none is named; write the records of each and print them.

    A scenario that breaks costs its own figures only. `prefix` is of the names under which the records are kept. The
    exit status: 1 when a target is not met or a scenario broke.
    """
    unmet, broken, count = [], [], 0
    for name in names or scenarios:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        try:
            records = save(f"{prefix}{name}", await scenarios[name](), versions)
        except Exception:
            traceback.print_exc()
            broken.append(name)
            continue
        Console(width=220).print(table(records))
        count += len(records)
        unmet += [record.figure for record in records if record.met is False]
    print(f"{count} figures, targets not met: {', '.join(unmet) or 'none'}; broken: {', '.join(broken) or 'none'}")
    return 1 if unmet or broken else 0


def unknown(scenarios: Mapping[str, object], names: Sequence[str]) -> str:
    """What is wrong with these names of scenarios; empty when nothing is."""
    wrong = [name for name in names if name not in scenarios]
    return f"there is no scenario {', '.join(wrong)}; there are {', '.join(scenarios)}" if wrong else ""
