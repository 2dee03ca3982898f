"""Run one soak and judge it; the exit status is 1 when an invariant did not hold.

python -m tests.chaos [--seconds 180] [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import signal
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rollbox.bench.machine import hardware
from tests.chaos import stored
from tests.chaos.events import Log
from tests.chaos.ground import Ground, ground
from tests.chaos.invariants import Verdict
from tests.chaos.judged import judged
from tests.chaos.playing import PlayedStorm

BUILD = Path(__file__).parent.parent.parent / "build" / "chaos"
CALM_WITHIN_S = 180.0
MOST_TOLD = 10


async def soak(seconds: float, seed: int) -> dict[str, Any]:
    """Let the storm rage, wait until all is at rest, judge; the record."""
    # As Ctrl-C: what the soak has started ends with it, whoever ends it. An exception out of a signal's handler
    # would go through whatever runs at that moment.
    if (this := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    async with ground(seed) as product:
        log = Log(product.folder / "storm.events")
        try:
            storm = PlayedStorm(product, seed, log)
            await storm.prepare()
            await storm.rage(seconds)
            await storm.calm(CALM_WITHIN_S)
            verdicts, rest_s, events = await judged(product, product.folder, partial(_keep_store, product))
        finally:
            log.close()
            _keep_logs(product, BUILD / str(seed))
    verdicts.append(Verdict("parts that fell by themselves", sum(storm.blows.values()), storm.trouble))
    return {
        "seed": seed,
        "seconds": seconds,
        "at_rest_after_s": [round(one, 1) for one in rest_s],
        "blows": storm.blows,
        "events": dict(sorted(Counter(event.what for event in events).items())),
        "errors": dict(Counter(f"{event.what} {event.code}" for event in events if event.what.endswith(".failed"))),
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "hardware": hardware(),
    }


def _keep_store(product: Ground, when: str) -> None:
    stored.keep(product.folder / "redis.sock", product.folder / f"store-{when}.log")


def _keep_logs(product: Ground, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for path in (*product.folder.glob("*.events"), *product.folder.glob("*.log")):
        shutil.copy(path, folder)


def _tell(record: dict[str, Any]) -> bool:
    """Print the verdicts; whether all invariants held."""
    print(f"blows: {record['blows']}; at rest after {record['at_rest_after_s']} s")
    print(f"errors that clients were told: {record['errors']}")
    for verdict in record["verdicts"]:
        print(f"{verdict['name']:<32} {len(verdict['violations'])} of {verdict['tried']:,} tried")
        for words in verdict["violations"][:MOST_TOLD]:
            print(f"    {words}")
    return not any(verdict["violations"] for verdict in record["verdicts"])


def main() -> int:
    """Run it; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="A storm over the whole lifecycle.")
    parser.add_argument("--seconds", type=float, default=180.0, help="how long it rages (180)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="repeats the same choices")
    asked = parser.parse_args()
    print(f"seed {asked.seed}: {asked.seconds:g} s of storm, then until all is at rest", flush=True)
    try:
        record = asyncio.run(soak(asked.seconds, asked.seed))
    except asyncio.CancelledError:
        print(f"seed {asked.seed}: ended by SIGTERM before it was judged", flush=True)
        return 128 + signal.SIGTERM
    path = BUILD / f"soak-{asked.seed}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    held = _tell(record)
    print(f"seed {asked.seed}; record: {path.relative_to(BUILD.parent.parent)}, logs beside it in {asked.seed}/")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
