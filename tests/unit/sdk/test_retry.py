"""Retries: how often, how long, and after which errors."""

import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox import RetryPolicy, SandboxError
from rollbox.deadline import Deadline
from rollbox.errors import (
    BY_CODE,
    CapacityUnavailable,
    Draining,
    InvalidArgument,
    RateLimited,
    SandboxLost,
    StreamInterrupted,
    UpstreamTimeout,
)
from rollbox.retry import REPEATABLE, Resumption, repeat
from tests.unit.sdk.conftest import Clock


async def test_it_gives_up_after_its_tries_and_raises_the_last_error(clock: Clock) -> None:
    calls = 0

    async def send() -> None:
        nonlocal calls
        calls += 1
        raise Draining(f"try {calls}")

    with pytest.raises(Draining, match="try 6"):
        await repeat(RetryPolicy(tries=6, longest_s=1.0, sleep=clock.sleep), send)
    longest = [min(0.1 * 3**n, 1.0) for n in range(5)]
    assert len(clock.waits) == 5
    assert all(most * 0.75 <= wait <= most for most, wait in zip(longest, clock.waits, strict=True))


async def test_other_errors_are_raised_at_once(clock: Clock) -> None:
    async def send() -> None:
        raise SandboxLost("gone")

    with pytest.raises(SandboxLost):
        await repeat(RetryPolicy(sleep=clock.sleep), send)
    assert clock.waits == []


async def test_what_has_waited_in_line_until_its_deadline_is_not_sent_to_wait_again(clock: Clock) -> None:
    async def send() -> None:
        raise CapacityUnavailable("full", details={"waited_ms": "118000"})

    with pytest.raises(CapacityUnavailable):
        await repeat(RetryPolicy(sleep=clock.sleep), send)
    assert clock.waits == []


@given(st.integers(1, 10), st.integers(0, 60_000), st.floats(0, 25))
def test_no_wait_breaks_the_budget_or_the_servers_wish(failures: int, after_ms: int, waited_s: float) -> None:
    policy = RetryPolicy()
    wait = policy.wait_s(failures, Draining("x", retry_after_ms=after_ms), waited_s)
    if wait is not None:
        assert failures < policy.tries
        assert wait >= after_ms / 1000
        assert waited_s + wait <= policy.budget_s


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_only_what_may_help_by_itself_is_repeated(code: str) -> None:
    error: SandboxError = BY_CODE[code]("x")
    assert (RetryPolicy().wait_s(1, error, 0) is not None) == (code in REPEATABLE)
    if code in REPEATABLE:
        assert error.retry in ("later", "resume")


@pytest.mark.parametrize("luck", [min, max])
async def test_what_nobody_answers_for_15_s_is_ridden_out(
    luck: Callable[[float, float], float], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(random, "uniform", luck)

    async def send() -> None:
        raise Draining("nobody answers")

    with pytest.raises(Draining):
        await repeat(RetryPolicy(sleep=clock.sleep), send)
    assert len(clock.waits) == RetryPolicy().tries - 1
    assert sum(clock.waits) >= 15


async def test_a_call_whose_gateway_is_silent_is_sent_twice_and_no_more(clock: Clock) -> None:
    calls = 0

    async def send() -> None:
        nonlocal calls
        calls += 1
        await clock.sleep(60)
        raise UpstreamTimeout("no answer within 60 s")

    with pytest.raises(UpstreamTimeout):
        await repeat(RetryPolicy(sleep=clock.sleep), send)
    assert (calls, round(clock.now_s)) == (2, 120)


async def test_nothing_is_sent_that_would_have_no_time_left(clock: Clock) -> None:
    calls = 0

    async def send() -> None:
        nonlocal calls
        calls += 1
        await clock.sleep(4)
        raise Draining("x", request_id="r1", retry_after_ms=1_500)

    with pytest.raises(Draining):
        await repeat(RetryPolicy(sleep=clock.sleep), send, deadline=Deadline(10), until_deadline=True)
    assert (calls, clock.now_s) == (2, 9.5)


async def test_room_is_not_asked_for_again_at_the_last_moment(clock: Clock) -> None:
    calls = 0

    async def send() -> None:
        nonlocal calls
        calls += 1
        await clock.sleep(9.5)
        raise CapacityUnavailable("no node takes it")

    with pytest.raises(CapacityUnavailable, match="no node takes it"):
        await repeat(RetryPolicy(sleep=clock.sleep), send, deadline=Deadline(10), until_deadline=True)
    assert calls == 1


async def test_a_patient_call_goes_on_until_its_deadline(clock: Clock) -> None:
    async def send() -> None:
        raise Draining("x", request_id="r1")

    with pytest.raises(Draining):
        await repeat(RetryPolicy(sleep=clock.sleep), send, deadline=Deadline(100), until_deadline=True)
    assert 96 < clock.now_s <= 100


def test_a_gateway_that_answers_is_waited_for_as_long_as_the_caller_does() -> None:
    policy = RetryPolicy()
    answered = Draining("x", request_id="r1")
    assert policy.wait_s(50, answered, 100, passing_for_s=120) is not None
    assert policy.wait_s(50, answered, 119, passing_for_s=120) is None
    assert policy.wait_s(50, Draining("nobody answers"), 30, passing_for_s=120) is None
    assert policy.wait_s(50, RateLimited("x", request_id="r1"), 30, passing_for_s=120) is None
    assert RetryPolicy(tries=1).wait_s(1, answered, 0, passing_for_s=120) is None


def shown(error: BaseException) -> list[str]:
    """What the traceback of an error shows, from the last failure to the first."""
    cause = error.__cause__ if error.__suppress_context__ else error.__context__
    return [str(getattr(error, "detail", error)), *(shown(cause) if cause else [])]


def failing(*errors: SandboxError) -> Callable[[], Awaitable[None]]:
    """Attempts that fail with these, one after the other; a `StreamInterrupted` because of a reset connection."""
    attempts = iter(errors)

    async def send() -> None:
        error = next(attempts)
        if isinstance(error, StreamInterrupted):
            raise error from ConnectionResetError("reset")
        raise error

    return send


async def test_the_error_that_is_raised_shows_the_failures_before_it(clock: Clock) -> None:
    attempts = failing(StreamInterrupted("cut"), Draining("restarting"), Draining("restarting"), InvalidArgument("no"))
    with pytest.raises(InvalidArgument) as caught:
        await repeat(RetryPolicy(sleep=clock.sleep), attempts)
    assert shown(caught.value) == ["no", "restarting", "cut", "reset"]


async def test_an_error_keeps_its_own_cause_before_the_failures_before_it(clock: Clock) -> None:
    attempts = failing(Draining("restarting"), StreamInterrupted("cut"))
    with pytest.raises(StreamInterrupted) as caught:
        await repeat(RetryPolicy(tries=2, sleep=clock.sleep), attempts)
    assert shown(caught.value) == ["cut", "reset", "restarting"]


async def test_a_lost_answer_of_what_cannot_be_repeated_is_raised_with_the_failures_before_it(clock: Clock) -> None:
    attempts = failing(Draining("restarting"), StreamInterrupted("cut"))
    with pytest.raises(StreamInterrupted) as caught:
        await repeat(RetryPolicy(sleep=clock.sleep), attempts, final=("stream_interrupted",))
    assert shown(caught.value) == ["cut", "reset", "restarting"]


async def test_one_failure_that_is_raised_again_and_again_is_shown_once(clock: Clock) -> None:
    first, second = Draining("restarting"), RateLimited("slow down")
    with pytest.raises(Draining) as caught:
        await repeat(RetryPolicy(tries=3, sleep=clock.sleep), failing(first, second, first))
    assert shown(caught.value) == ["restarting"]


async def test_a_stream_that_cannot_be_resumed_shows_what_broke_it_since_its_last_data(clock: Clock) -> None:
    resumption = Resumption(RetryPolicy(sleep=clock.sleep), 60)
    await resumption.after(Draining("long ago"))
    resumption.progress()
    await resumption.after(StreamInterrupted("cut"))
    await resumption.after(Draining("restarting"))
    with pytest.raises(SandboxLost) as caught:
        await resumption.after(SandboxLost("gone"))
    assert shown(caught.value) == ["gone", "restarting", "cut"]
