"""Waiting until all is at rest, and judging: the same for the played cluster and for a real one."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from tests.chaos import invariants, look
from tests.chaos.events import Event, read
from tests.chaos.invariants import Seen, Verdict
from tests.chaos.look import Place

# In which nothing that is wrong changes: cluster and record are compared once a minute, and within 12 s by another
# control plane when the one that did so was killed; what a node does not stop is reported after two minutes and a half.
STILL_FOR_S = 180.0
REST_WITHIN_S = 600.0


async def judged(
    product: Place, folder: Path, keep: Callable[[str], None]
) -> tuple[list[Verdict], list[float], list[Event]]:
    """Judge twice: with all that the storm has left, and once everything is deleted; and how long rest took (s).

    Args:
        product: whole, and left alone.
        folder: of the logs.
        keep: called at both moments with a name for what is there: evidence.
    """
    events = read(folder)
    answered = {event.id for event in events if event.what == "create.answered"}
    first_s, full = await _at_rest(product, answered, events)
    keep("full")
    events.append(Event(time.monotonic(), "judge.looked"))
    verdicts = invariants.judge(events, full)
    for owner in product.owners:
        async with product.client(owner) as client:
            if mine := [name for name, whose in full.live.items() if whose == owner]:
                await client.delete(*mine, wait=True)
    second_s, empty = await _at_rest(product)
    keep("empty")
    left = {verdict.name: verdict for verdict in invariants.judge((), empty)}
    verdicts = [verdict + left[verdict.name] for verdict in verdicts]
    return verdicts, [first_s, second_s], events


async def _at_rest(product: Place, answered: Collection[str] = (), events: Sequence[Event] = ()) -> tuple[float, Seen]:
    """Look until nothing is wrong any more, or what is wrong stays as it is."""
    began_s = changed_s = time.monotonic()
    before = list[str]()
    while True:
        seen = await look.seen(product, answered)
        looks = (
            invariants.orphans(seen, 0),
            invariants.quota_drift(seen, 0),
            # A sidecar that is silent is asked more than once.
            invariants.unnoticed_deaths(events, seen),
        )
        wrong = sorted(words for look in looks for words in look.violations)
        now_s = time.monotonic()
        if wrong != before:
            before, changed_s = wrong, now_s
        gone_s = now_s - began_s
        if not wrong or now_s - changed_s > STILL_FOR_S or gone_s > REST_WITHIN_S:
            return gone_s, seen
        print(f"not at rest after {gone_s:.0f} s: {wrong[0]} (and {len(wrong) - 1} more)", file=sys.stderr, flush=True)
        await asyncio.sleep(2)
