"""Batches of plain functions: as those of coroutines, and a cancelled rollout ends with its call of the platform."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from rollbox import sync
from rollbox.errors import FileNotFound, InvalidArgument
from tests.support.eventually import LIMIT_S, eventually_true
from tests.support.gateway_fake import FakeGateway


class Gauge:
    """Counts rollouts in flight, now and at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def test_every_sample_has_one_outcome_and_no_more_run_than_may(apart: FakeGateway) -> None:
    gauge = Gauge()

    def rollout(number: int) -> int:
        with gauge, sync.Sandbox.create("python") as sandbox:
            assert sandbox.exec("true").ok
            return 2 * number

    with sync.Batch(range(40), rollout, in_flight=4) as batch:
        outcomes = list(batch)
    assert sorted((one.sample, one.value, one.masked) for one in outcomes) == [(n, 2 * n, False) for n in range(40)]
    assert (gauge.now, gauge.most, batch.running, batch.not_begun, batch.cancelled) == (0, 4, [], [], 0)
    assert sync.Sandbox.list() == []


def hangs(apart: FakeGateway, cleaned: list[str]) -> Callable[[str], None]:
    """A rollout whose command ends with its cancellation alone, and that then still cleans up."""

    def rollout(name: str) -> None:
        try:
            with sync.Sandbox.create("python") as sandbox:
                sandbox.exec("hold", exec_id=name)
        except Exception as error:  # a cancelled rollout is no failure
            raise AssertionError from error
        finally:
            cleaned.append(name)

    return rollout


def test_a_stale_rollout_ends_with_its_call_and_deletes_its_sandbox(apart: FakeGateway) -> None:
    cleaned: list[str] = []
    with sync.Batch(["e1"], hangs(apart, cleaned), in_flight=1) as batch:
        with pytest.raises(TimeoutError):
            batch.next(timeout=0.01)
        assert apart.held.wait(LIMIT_S)
        assert batch.running == ["e1"]
        assert batch.cancel(lambda name: name == "e1") == 1
        assert list(batch) == []
    assert (cleaned, batch.cancelled, apart.cancelled["e1"].is_set()) == (["e1"], 1, True)
    assert sync.Sandbox.list() == []


def test_what_a_reader_that_gave_up_has_left_is_no_error_of_anyone(
    apart: FakeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    def left_by_its_reader() -> None:
        cleaned: list[str] = []
        with sync.Batch(["e1"], hangs(apart, cleaned), in_flight=1) as batch:
            with pytest.raises(TimeoutError):
                batch.next(timeout=0.01)
            assert apart.held.wait(LIMIT_S)
            batch.cancel(lambda name: name == "e1")
            eventually_true(lambda: cleaned == ["e1"] and not batch.running)

    left_by_its_reader()
    # Only then a task says that nobody has asked what it raised.
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_a_rollout_whose_time_is_over_has_an_outcome(apart: FakeGateway) -> None:
    cleaned: list[str] = []
    with sync.Batch(["e1"], hangs(apart, cleaned), in_flight=1, timeout=0.2) as batch:
        (outcome,) = batch
    assert (outcome.timed_out, outcome.masked, cleaned) == (True, True, ["e1"])


def test_between_two_calls_the_next_one_is_cancelled(apart: FakeGateway) -> None:
    asked, told = threading.Event(), threading.Event()
    seen: list[type[BaseException]] = []

    def rollout(_: int) -> None:
        asked.set()
        assert told.wait(LIMIT_S)
        for _ in range(2):
            try:
                sync.Sandbox.list()
            except BaseException as error:
                seen.append(type(error))

    with sync.Batch([1], rollout, in_flight=1) as batch:
        with pytest.raises(TimeoutError):
            batch.next(timeout=0.01)
        assert asked.wait(LIMIT_S)
        assert batch.cancel(lambda _: True) == 1
        sync.Sandbox.list()  # the cancellation has reached the loop
        told.set()
    assert seen == [asyncio.CancelledError]


def test_leaving_the_block_ends_all_rollouts(apart: FakeGateway) -> None:
    cleaned: list[str] = []
    with sync.Batch(["a", "b"], hangs(apart, cleaned), in_flight=1) as batch:
        with pytest.raises(TimeoutError):
            batch.next(timeout=0.01)
        assert apart.held.wait(LIMIT_S)
    assert (cleaned, sync.Sandbox.list()) == (["a"], [])


@pytest.mark.parametrize("raised", [KeyError("bug"), SystemExit(3), StopIteration(4)])
def test_a_bug_of_a_rollout_ends_the_batch(apart: FakeGateway, raised: BaseException) -> None:
    def rollout(number: int) -> None:
        if number == 3:
            raise raised

    with pytest.raises(ExceptionGroup) as caught, sync.Batch(range(100), rollout, in_flight=2) as batch:
        assert [one.sample for one in batch][:1] == [0]
    (error,) = caught.value.exceptions
    assert error is raised or (type(error), error.__cause__) == (RuntimeError, raised)
    assert sync.Sandbox.list() == []


def test_failures_are_outcomes_and_slow_samples_hold_up_nothing(apart: FakeGateway) -> None:
    coming: queue.Queue[int | None] = queue.Queue()

    def samples() -> Iterator[int]:
        while (number := coming.get()) is not None:
            yield number

    def rollout(number: int) -> int:
        if number == 2:
            raise FileNotFound("there is no file")
        return number

    with sync.Batch(samples(), rollout, in_flight=2) as batch:
        for number in (1, 2, 3):
            coming.put(number)
            outcome = next(batch)
            assert (outcome.sample, outcome.value) == (number, None if number == 2 else number)
            assert (outcome.error is not None) == (number == 2)
        coming.put(None)
        assert list(batch) == []


def test_what_cannot_be_is_refused() -> None:
    async def rollout(_: int) -> None: ...

    with pytest.raises(InvalidArgument, match="coroutine function"):
        sync.Batch([1], rollout, in_flight=1)
    with pytest.raises(InvalidArgument, match="in_flight"):
        sync.Batch([1], str, in_flight=0)
    with pytest.raises(InvalidArgument, match="within its `with`"):
        next(sync.Batch([1], str, in_flight=1))
