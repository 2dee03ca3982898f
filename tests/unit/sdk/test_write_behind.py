"""`transfer.WriteBehind`: in order, with a bounded buffer, nothing running after the close."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rollbox.files.transfer import WriteBehind

PART = bytes(200_000)


async def test_parts_are_handed_on_in_order_and_all_of_them() -> None:
    taken: list[bytes] = []
    behind = WriteBehind(taken.append)
    parts = [bytes([n]) * 100_000 for n in range(40)]
    for part in parts:
        await behind.put(part)
    await behind.finish()
    await behind.aclose()
    assert taken == parts


async def test_no_more_is_held_than_two_lots() -> None:
    may_go = threading.Event()
    taken: list[bytes] = []

    def take(part: bytes) -> None:
        may_go.wait()
        taken.append(part)

    behind = WriteBehind(take)
    for _ in range(5):
        await behind.put(PART)
    held_up = asyncio.ensure_future(behind.put(PART))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not held_up.done()
    may_go.set()
    await held_up
    await behind.finish()
    await behind.aclose()
    assert taken == [PART] * 6


async def test_a_failure_is_raised_by_the_next_call() -> None:
    def take(_: bytes) -> None:
        raise OSError("full")

    behind = WriteBehind(take)
    for _ in range(3):
        await behind.put(PART)
    with pytest.raises(OSError, match="full"):
        await behind.finish()
    await behind.aclose()


async def test_who_is_cancelled_closes_with_nothing_under_way() -> None:
    begun, may_go = threading.Event(), threading.Event()
    taken: list[bytes] = []

    def take(part: bytes) -> None:
        begun.set()
        may_go.wait()
        taken.append(part)

    behind = WriteBehind(take)
    for _ in range(3):
        await behind.put(PART)
    await asyncio.to_thread(begun.wait)
    finishing = asyncio.ensure_future(behind.finish())
    await asyncio.sleep(0)
    finishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finishing
    may_go.set()
    await behind.aclose()
    await behind.aclose()
    assert taken == [PART] * 3
