"""The reaper's heap: right moments, moved moments, no growth."""

import asyncio

from controlplane.lifecycle.reaper import SLACK_ENTRIES, Reaper
from tests.support.virtual_time import EPOCH_MS, VirtualClock


async def fired(reaper: Reaper, for_s: float) -> list[tuple[str, int]]:
    clock, seen = VirtualClock(), []

    async def expire(sandbox_id: str) -> None:
        seen.append((sandbox_id, clock.now_ms() - EPOCH_MS))

    loop = asyncio.create_task(reaper.run(expire))
    await asyncio.sleep(for_s)
    loop.cancel()
    await asyncio.wait([loop])
    return seen


async def test_moments_fire_in_order_and_once() -> None:
    reaper = Reaper(VirtualClock())
    for name, at_s in (("c", 300), ("a", 1), ("b", 70)):
        reaper.watch(name, EPOCH_MS + at_s * 1000)
    assert await fired(reaper, 1000) == [("a", 1_000), ("b", 70_000), ("c", 300_000)]


async def test_a_moved_moment_fires_at_its_new_time_only() -> None:
    reaper = Reaper(VirtualClock())
    reaper.watch("a", EPOCH_MS + 1_000)
    reaper.watch("a", EPOCH_MS + 5_000)
    reaper.watch("gone", EPOCH_MS + 2_000)
    reaper.forget("gone")
    assert await fired(reaper, 10) == [("a", 5_000)]


async def test_an_earlier_moment_wakes_the_loop() -> None:
    reaper = Reaper(VirtualClock())
    reaper.watch("late", EPOCH_MS + 50_000)
    running = asyncio.create_task(fired(reaper, 3))
    await asyncio.sleep(1)
    reaper.watch("soon", EPOCH_MS + 2_000)
    assert await running == [("soon", 2_000)]


async def test_forgotten_moments_do_not_pile_up() -> None:
    reaper = Reaper(VirtualClock())
    for number in range(10 * SLACK_ENTRIES):
        reaper.watch(f"sb-{number}", EPOCH_MS + 10**9)
        reaper.forget(f"sb-{number}")
    assert len(reaper._heap) <= SLACK_ENTRIES + 1
