"""Facts written in the background: bounded, coalesced, repeated, given up; a hanging cluster holds nobody up."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from controlplane.errors import Problem
from controlplane.lifecycle.record import annotations
from controlplane.lifecycle.record.annotations import (
    CALM_S,
    HINT_EVERY_S,
    LATE_S,
    MANY_PENDING,
    QUIET_S,
    REST_S,
    TRIES,
    WRITERS,
    Annotations,
)
from tests.support.fake_cluster import FakeCluster


class Slow(FakeCluster):
    """Takes a second for a write, and may refuse them all."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, dict[str, str]]] = []
        self.refuse = False
        self.tries = 0

    async def annotate(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        self.tries += 1
        await asyncio.sleep(1)
        if self.refuse:
            raise Problem("internal", "the API server is busy")
        self.written.append((sandbox_id, dict(facts)))


@asynccontextmanager
async def writing(cluster: FakeCluster) -> AsyncIterator[Annotations]:
    writer = Annotations(cluster, lambda _id: None)
    loop = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        loop.cancel()
        await asyncio.wait([loop])


async def test_what_comes_while_one_waits_goes_along() -> None:
    cluster = Slow()
    async with writing(cluster) as writer:
        for number in range(WRITERS):
            writer.add(f"sb-{number}", {"a": "1"})
        writer.add("sb-x", {"a": "1"})
        await asyncio.sleep(0.5)
        writer.add("sb-x", {"a": "2", "b": "3"})
        assert writer.pending == WRITERS + 1
        await writer.flush()
        assert writer.pending == 0
    assert [facts for name, facts in cluster.written if name == "sb-x"] == [{"a": "2", "b": "3"}]


async def test_a_herd_is_waited_out() -> None:
    cluster = Slow()
    async with writing(cluster) as writer:
        for number in range(20):
            writer.add(f"sb-{number}", {"a": "1"})
            await asyncio.sleep(QUIET_S / 2)
            assert cluster.tries == 0
        await asyncio.sleep(QUIET_S)
        assert cluster.tries == WRITERS


async def test_with_many_pending_nobody_rests() -> None:
    cluster = FakeCluster()
    async with writing(cluster) as writer:
        for number in range(2 * MANY_PENDING):
            writer.add(f"sb-{number}", {"a": "1"})
        await asyncio.sleep(QUIET_S + 0.01)
        assert writer.pending < MANY_PENDING, "the cluster answers at once here: only rests take time"
        await asyncio.sleep(REST_S / 2)
        assert writer.pending > 0
        await asyncio.sleep(MANY_PENDING / WRITERS * REST_S)
        assert writer.pending == 0


async def test_what_is_late_is_written_however_busy_it_is() -> None:
    cluster = Slow()
    async with writing(cluster) as writer:
        for number in range(round(2 * LATE_S / QUIET_S) - 1):
            writer.add(f"sb-{number}", {"a": "1"})
            await asyncio.sleep(QUIET_S / 2)
        assert cluster.tries == 0
        for number in range(5):
            writer.add(f"sb-more-{number}", {"a": "1"})
            await asyncio.sleep(QUIET_S / 2)
        assert cluster.tries == WRITERS


async def test_what_only_we_know_goes_first() -> None:
    cluster = Slow()
    async with writing(cluster) as writer:
        for number in range(20):
            writer.add(f"sb-{number}", {"a": "1"})
            await asyncio.sleep(QUIET_S / 2)
        writer.add("sb-x", {"b": "2"}, first=True)
        writer.add("sb-y", {"a": "1"})
        await asyncio.sleep(QUIET_S + 1.1)
    assert cluster.written[0] == ("sb-x", {"b": "2"})


async def test_a_herd_costs_no_hint_and_hints_are_written_slowly_when_it_is_over() -> None:
    cluster = FakeCluster()
    async with writing(cluster) as writer:
        for number in range(100):
            writer.hint(f"sb-{number}", {"a": "1"})
            await asyncio.sleep(CALM_S / 2)
        assert (cluster.annotated, writer.pending) == ([], 0)
        writer.forget("sb-0")
        await asyncio.sleep(CALM_S + 2)
        assert 0 < len(cluster.annotated) <= 2 + 2 / HINT_EVERY_S
        await asyncio.sleep(100 * HINT_EVERY_S)
        assert cluster.annotated == [f"sb-{number}" for number in range(1, 100)]


async def test_a_hint_goes_along_with_what_is_pending_and_waits_for_what_is_not_one() -> None:
    cluster = Slow()
    async with writing(cluster) as writer:
        writer.hint("sb-1", {"a": "1"})
        await asyncio.sleep(CALM_S / 2)
        writer.add("sb-2", {"b": "2"})
        await asyncio.sleep(CALM_S + 2)
        assert [name for name, _ in cluster.written] == ["sb-2", "sb-1"]


async def test_an_ended_sandbox_is_not_written_of() -> None:
    cluster = Slow()
    async with writing(cluster) as writer:
        writer.add("sb-1", {"a": "1"})
        writer.forget("sb-1")
        await asyncio.sleep(5)
    assert cluster.written == []


async def test_a_refusal_is_repeated_and_given_up_in_the_end() -> None:
    cluster = Slow()
    cluster.refuse = True
    async with writing(cluster) as writer:
        writer.add("sb-1", {"a": "1"})
        await asyncio.sleep(300)
        assert cluster.tries == TRIES
        assert writer.pending == 0


async def test_there_is_never_more_pending_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotations, "MOST_PENDING", 10)
    writer = Annotations(Slow(), lambda _id: None)
    for number in range(50):
        writer.add(f"sb-{number}", {"a": "1"})
    assert writer.pending == 10


async def test_a_flush_does_not_wait_for_ever() -> None:
    cluster = Slow()
    cluster.refuse = True
    loop = asyncio.get_running_loop()
    async with writing(cluster) as writer:
        writer.add("sb-1", {"a": "1"})
        began_s = loop.time()
        await writer.flush()
        assert loop.time() - began_s < 4
