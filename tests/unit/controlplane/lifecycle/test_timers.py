"""The timers's heap: right moments, moved moments, no growth."""

import asyncio

from controlplane.lifecycle.deadlines import SLACK_ENTRIES
from controlplane.lifecycle.expiry.timers import Timers
from tests.support.virtual_time import EPOCH_MS, VirtualClock


async def fired(timers: Timers, for_s: float) -> list[tuple[str, int]]:
    clock, seen = VirtualClock(), []

    async def expire(sandbox_id: str) -> None:
        seen.append((sandbox_id, clock.now_ms() - EPOCH_MS))

    loop = asyncio.create_task(timers.run(expire))
    await asyncio.sleep(for_s)
    loop.cancel()
    await asyncio.wait([loop])
    return seen


async def test_moments_fire_in_order_and_once() -> None:
    timers = Timers(VirtualClock())
    for name, at_s in (("c", 300), ("a", 1), ("b", 70)):
        timers.watch(name, EPOCH_MS + at_s * 1000)
    assert await fired(timers, 1000) == [("a", 1_000), ("b", 70_000), ("c", 300_000)]


async def test_a_moved_moment_fires_at_its_new_time_only() -> None:
    timers = Timers(VirtualClock())
    timers.watch("a", EPOCH_MS + 1_000)
    timers.watch("a", EPOCH_MS + 5_000)
    timers.watch("gone", EPOCH_MS + 2_000)
    timers.forget("gone")
    assert await fired(timers, 10) == [("a", 5_000)]


async def test_an_earlier_moment_wakes_the_loop() -> None:
    timers = Timers(VirtualClock())
    timers.watch("late", EPOCH_MS + 50_000)
    running = asyncio.create_task(fired(timers, 3))
    await asyncio.sleep(1)
    timers.watch("soon", EPOCH_MS + 2_000)
    assert await running == [("soon", 2_000)]


async def test_forgotten_moments_do_not_pile_up() -> None:
    timers = Timers(VirtualClock())
    for number in range(10 * SLACK_ENTRIES):
        timers.watch(f"sb-{number}", EPOCH_MS + 10**9)
        timers.forget(f"sb-{number}")
    assert len(timers._deadlines._heap) <= SLACK_ENTRIES + 1
