"""Continuous batching: a fixed number in flight, stale ones cancelled at once, one error for an outage."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext

import pytest

from rollbox import Batch, BreakerPolicy, Client, Outcome, RetryPolicy, SandboxError
from rollbox.errors import (
    FileNotFound,
    ImageNotFound,
    Internal,
    InvalidArgument,
    OomKilled,
    SandboxLost,
    Unauthenticated,
)
from tests.support.gateway_fake import FakeGateway, Fault
from tests.support.virtual_time import VirtualTimeLoop


def virtually(test: Callable[[], object]) -> object:
    """Run a coroutine function on an event loop with virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(test())  # type: ignore[arg-type]


class Gauge:
    """Counts rollouts in flight, now and at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def rollout(self, seconds: float) -> float:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.now -= 1
        return seconds


def test_every_sample_has_one_outcome_and_no_place_stays_empty() -> None:
    async def run() -> None:
        gauge, times = Gauge(), [1 + n % 7 for n in range(100)]
        began = asyncio.get_running_loop().time()
        async with Batch(times, gauge.rollout, in_flight=10) as batch:
            values = [outcome.value async for outcome in batch]
        assert sorted(v for v in values if v is not None) == sorted(times)
        assert gauge.most == 10
        # No rollout waits for others to end: all take as long as their work on ten slots, plus the tail of the last.
        assert asyncio.get_running_loop().time() - began <= sum(times) / 10 + 7  # speed: virtual time

    virtually(run)


def test_a_slow_reader_stops_the_supply_and_an_endless_supply_is_read_as_needed() -> None:
    async def run() -> None:
        taken: list[int] = []

        def supply() -> Iterator[int]:
            for n in itertools.count():
                taken.append(n)
                yield n

        async def rollout(n: int) -> int:
            await asyncio.sleep(1)
            return n

        async with Batch(supply(), rollout, in_flight=5) as batch:
            first = await anext(batch)
            await asyncio.sleep(1000)
            assert first.value is not None
            # One that was read, five unread outcomes, and at most five more in flight.
            assert len(taken) <= 11
            assert batch.running == []

    virtually(run)


def test_stale_ones_are_cancelled_and_replaced_at_once() -> None:
    async def run() -> None:
        ended: list[int] = []

        async def rollout(n: int) -> int:
            try:
                await asyncio.sleep(1 if n >= 4 else 10_000)
            except asyncio.CancelledError:
                ended.append(n)
                # The cleanup of a rollout takes a while; its replacement does not wait for it.
                await asyncio.sleep(2)
                raise
            return n

        async with Batch(range(8), rollout, in_flight=4) as batch:
            reading = asyncio.ensure_future(anext(batch))
            await asyncio.sleep(0.5)
            assert batch.cancel(lambda n: n < 4) == 4
            assert batch.running == [4, 5, 6, 7]
            await asyncio.sleep(0)
            assert ended == [0, 1, 2, 3]
            values = {(await reading).value, *[outcome.value async for outcome in batch]}
        assert (values, batch.cancelled) == ({4, 5, 6, 7}, 4)

    virtually(run)


def test_failures_of_the_platform_are_masked_and_others_are_not() -> None:
    errors = {1: SandboxLost("gone"), 2: OomKilled("too much")}

    async def rollout(n: int) -> str:
        if n in errors:
            raise errors[n]
        return "done"

    async def run() -> None:
        async with Batch(range(4), rollout, in_flight=2) as batch:
            found = {outcome.sample: outcome async for outcome in batch}
        assert {n: outcome.masked for n, outcome in found.items()} == {0: False, 1: True, 2: False, 3: False}
        assert (found[2].error, found[3].value) == (errors[2], "done")

    virtually(run)


def test_a_fault_of_the_program_ends_all_and_is_raised() -> None:
    gauge = Gauge()

    async def rollout(n: int) -> float:
        if n == 3:
            await asyncio.sleep(1)
            raise ZeroDivisionError
        try:
            return await gauge.rollout(100)
        except asyncio.CancelledError:
            raise SandboxLost("as a library would that turns one thing into another") from None

    async def run() -> None:
        async with Batch(range(10), rollout, in_flight=4) as batch:
            async for _ in batch:
                pass

    with pytest.raises(ExceptionGroup) as caught:
        virtually(run)
    assert caught.group_contains(ZeroDivisionError)
    assert gauge.now == 0


def test_leaving_early_leaves_nothing_running() -> None:
    async def run() -> None:
        gauge = Gauge()
        async with Batch(itertools.repeat(1.0), gauge.rollout, in_flight=10) as batch:
            async for _ in batch:
                break
            assert gauge.now > 0
        assert gauge.now == 0

    virtually(run)


def test_a_rollout_that_waited_for_something_cancelled_gives_its_place_away() -> None:
    async def run() -> None:
        dead = asyncio.get_running_loop().create_future()
        dead.cancel()

        async def rollout(n: int) -> int:
            await asyncio.sleep(1)
            if n in {1, 4}:
                await dead
            return n

        async with Batch(range(5), rollout, in_flight=2) as batch, asyncio.timeout(100):
            assert {outcome.value async for outcome in batch} == {0, 2, 3}
        assert (batch.cancelled, batch.running) == (2, [])

    virtually(run)


def test_an_exit_in_a_rollout_starts_nothing_more() -> None:
    begun: list[int] = []

    async def rollout(n: int) -> None:
        begun.append(n)
        await asyncio.sleep(n)
        raise SystemExit

    async def run() -> None:
        async with Batch(itertools.count(1), rollout, in_flight=2) as batch:
            await anext(batch)

    with pytest.raises(SystemExit):
        virtually(run)
    assert begun == [1, 2]


async def test_bad_input_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="in_flight"):
        Batch([], Gauge().rollout, in_flight=0)
    with pytest.raises(InvalidArgument, match="async with"):
        await anext(Batch([], Gauge().rollout, in_flight=1))


async def test_a_stale_rollout_kills_its_command_and_frees_its_sandbox(client: Client, fake: FakeGateway) -> None:
    async def rollout(n: int) -> int:
        async with await client.create("python") as sandbox:
            await sandbox.exec("hold" if n == 0 else "true", exec_id=f"e{n}")
        return n

    async with Batch(range(2), rollout, in_flight=1) as batch:
        reading = asyncio.ensure_future(anext(batch))
        await fake.holding.wait()
        batch.cancel(lambda n: n == 0)
        assert (await reading).value == 1
    assert fake.cancelled["e0"].is_set()
    assert {box["state"] for box in fake.sandboxes.values()} == {"ended"}


async def test_an_outage_is_one_error_after_what_was_in_flight(fake: FakeGateway) -> None:
    policy = BreakerPolicy(failures=3, first_s=1000)

    async with Client(retries=RetryPolicy(tries=1), breaker=policy) as client:

        async def rollout(n: int) -> int:
            async with await client.create("python"):
                if n == 0:
                    fake.fail("create", *[Fault("internal")] * 3)
                return n

        batch = Batch(range(1000), rollout, in_flight=1)
        outcomes: list[Outcome[int, int]] = []

        async def read() -> None:
            async with batch:
                async for outcome in batch:
                    outcomes.append(outcome)

        with pytest.raises(Internal, match="creates are stopped") as stopped:
            await read()
    assert isinstance(stopped.value, SandboxError)
    assert stopped.value.is_infra
    assert [outcome.value for outcome in outcomes] == [0, None, None, None]
    assert [outcome.masked for outcome in outcomes] == [False, True, True, True]
    assert batch.not_begun == [4]
    assert fake.count("POST", "/v1/sandboxes") == 4


def test_a_rollout_that_takes_too_long_is_an_outcome_and_the_others_go_on() -> None:
    async def run() -> None:
        gauge = Gauge()
        async with Batch([1.0, 1000.0, 2.0], gauge.rollout, in_flight=2, timeout=60) as batch:
            outcomes = {outcome.sample: outcome async for outcome in batch}
        late = outcomes[1000.0]
        assert [outcomes[sample].value for sample in (1.0, 2.0)] == [1.0, 2.0]
        assert (late.timed_out, late.masked, late.error and late.error.code) == (True, True, "exec_deadline")
        assert "limit of 60 s" in str(late.error)
        assert gauge.now == 0

    virtually(run)


def test_a_limit_within_a_rollout_ends_that_rollout_alone() -> None:
    async def rollout(sample: int) -> int:
        async with asyncio.timeout(10):
            await asyncio.sleep(sample)
        return sample

    async def run() -> None:
        async with Batch([1, 100, 2], rollout, in_flight=1) as batch:
            outcomes = [(outcome.sample, outcome.value, outcome.timed_out) async for outcome in batch]
        assert outcomes == [(1, 1, False), (100, None, True), (2, 2, False)]

    virtually(run)


def test_samples_that_come_by_and_by_hold_up_no_rollout() -> None:
    async def supply() -> AsyncIterator[float]:
        for sample in (5.0, 5.0, 1.0):
            yield sample
        await asyncio.sleep(100)
        yield 2.0

    async def run() -> None:
        gauge, loop = Gauge(), asyncio.get_running_loop()
        began, came = loop.time(), []
        async with Batch(supply(), gauge.rollout, in_flight=2) as batch:
            async for outcome in batch:
                came.append((outcome.value, loop.time() - began))
        assert came == [(5.0, 5.0), (5.0, 5.0), (1.0, 6.0), (2.0, 107.0)]
        assert gauge.most == 2

    virtually(run)


def test_a_batch_that_is_left_takes_no_more_samples() -> None:
    taken: list[int] = []

    async def supply() -> AsyncIterator[int]:
        for sample in itertools.count():
            taken.append(sample)
            yield sample
            await asyncio.sleep(10)

    async def run() -> None:
        async with Batch(supply(), Gauge().rollout, in_flight=4) as batch:
            assert (await anext(batch)).value == 0
        assert taken == [0]

    virtually(run)
    with pytest.raises(InvalidArgument, match="ahead"):
        Batch(supply(), Gauge().rollout, in_flight=1, image=lambda _: "python")


@pytest.mark.parametrize(
    ("raised", "stops"),
    [
        (lambda n: ImageNotFound(f"there is no image pyton (sb-{n})", sandbox_id=f"sb-{n}"), True),
        (lambda n: InvalidArgument("memory 'lots' is no size"), True),
        (lambda n: InvalidArgument("a ttl of 0", details={"reason": "ttl"}), True),
        (lambda n: InvalidArgument("no nosuch", sandbox_id="sb-1", details={"reason": "command_not_found"}), False),
        (lambda n: ImageNotFound("there is no pyhton", details={"reason": "local_image"}), True),
        (lambda n: Unauthenticated("the API key is not known here", details={"reason": "api_key"}), True),
        (lambda n: FileNotFound("/answer does not exist"), False),
        (lambda n: ImageNotFound(f"there is no image image-{n}"), False),
        (lambda n: OomKilled("over") if n == 7 else InvalidArgument("the same"), False),
    ],
)
async def test_a_mistake_that_fails_everything_alike_is_said_once(
    raised: Callable[[int], SandboxError], stops: bool
) -> None:
    async def rollout(sample: int) -> None:
        raise raised(sample)

    seen: list[int] = []
    stop = pytest.raises(type(raised(0)), match="^the first 30 rollouts have failed alike, so no more are begun: ")
    async with Batch(range(200), rollout, in_flight=4) as batch:
        with stop if stops else nullcontext():
            async for outcome in batch:
                seen.append(outcome.sample)
    assert (30 <= len(seen) < 40) if stops else len(seen) == 200
