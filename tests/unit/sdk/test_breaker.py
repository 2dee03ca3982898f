"""The circuit breaker: what opens it, what closes it, and its error message. The clock is set by hand."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox import BreakerPolicy, Client, RetryPolicy, SandboxError
from rollbox.breaker import Breaker, is_open
from rollbox.errors import (
    CapacityUnavailable,
    ImageNotFound,
    ImagePullFailed,
    Internal,
    QuotaExceeded,
    SandboxLost,
    UpstreamTimeout,
)
from tests.support.gateway_fake import FakeGateway, Fault


@dataclass
class Now:
    """A clock that is set by hand."""

    s: float = 1000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def breaker(now: Now) -> Breaker:
    return Breaker(BreakerPolicy(failures=3, first_s=10, longest_s=30, now=now))


def attempt(breaker: Breaker, failure: BaseException | None = None) -> bool:
    """Run one create through the breaker; returns whether it was sent."""
    sent = False
    try:
        with breaker.watching():
            sent = True
            if failure is not None:
                raise failure
    except (SandboxError, KeyboardInterrupt):
        pass
    return sent


def state(breaker: Breaker) -> str:
    return breaker.state


def broken(breaker: Breaker, times: int = 3) -> None:
    for _ in range(times):
        assert attempt(breaker, UpstreamTimeout("no connection to http://gateway"))


def test_failures_in_a_row_open_it(breaker: Breaker) -> None:
    broken(breaker, 2)
    assert state(breaker) == "closed"
    broken(breaker, 1)
    assert state(breaker) == "open"
    assert not attempt(breaker)


def test_a_success_in_between_begins_the_count_anew(breaker: Breaker) -> None:
    for _ in range(5):
        broken(breaker, 2)
        attempt(breaker)
    assert state(breaker) == "closed"


@pytest.mark.parametrize("kind", [ImageNotFound, QuotaExceeded, CapacityUnavailable])
def test_an_answer_that_is_no_failure_of_the_platform_proves_that_it_is_there(
    breaker: Breaker, kind: type[SandboxError]
) -> None:
    broken(breaker, 2)
    attempt(breaker, kind("no", request_id="r"))
    broken(breaker, 2)
    assert state(breaker) == "closed"


def test_what_no_server_said_proves_nothing(breaker: Breaker) -> None:
    broken(breaker, 2)
    attempt(breaker, ImageNotFound("made up here"))
    broken(breaker, 1)
    assert state(breaker) == "open"


def test_a_failure_of_one_image_stops_no_other(breaker: Breaker) -> None:
    for _ in range(20):
        assert attempt(breaker, ImagePullFailed("the registry is away", request_id="r"))
    assert state(breaker) == "closed"


@pytest.mark.parametrize("kind", [Internal, SandboxLost, UpstreamTimeout])
def test_every_failure_of_the_platform_counts(breaker: Breaker, kind: type[SandboxError]) -> None:
    for _ in range(3):
        attempt(breaker, kind("it broke", request_id="r"))
    assert state(breaker) == "open"


def test_one_probe_passes_and_its_success_closes(breaker: Breaker, now: Now) -> None:
    broken(breaker)
    now.s += 9.9
    assert not attempt(breaker)
    now.s += 0.1
    assert state(breaker) == "half_open"
    with breaker.watching():
        assert not attempt(breaker)
    assert state(breaker) == "closed"
    assert attempt(breaker)


def test_a_probe_that_fails_doubles_the_wait_up_to_the_longest(breaker: Breaker, now: Now) -> None:
    broken(breaker)
    waits = []
    for _ in range(4):
        waits.append(breaker.retry_after_s())
        now.s += breaker.retry_after_s()
        broken(breaker, 1)
    assert waits == [10, 20, 30, 30]


def test_a_cancelled_probe_decides_nothing_and_the_next_may_try(breaker: Breaker, now: Now) -> None:
    broken(breaker)
    now.s += 10
    assert attempt(breaker, KeyboardInterrupt())
    assert state(breaker) == "half_open"
    assert attempt(breaker)
    assert state(breaker) == "closed"


def test_creates_that_were_under_way_do_not_prolong_it(breaker: Breaker, now: Now) -> None:
    def late() -> None:
        with breaker.watching():
            broken(breaker)
            now.s += 5
            raise UpstreamTimeout("a late one")

    with pytest.raises(UpstreamTimeout):
        late()
    assert breaker.retry_after_s() == 5


def test_a_create_that_was_under_way_and_succeeds_closes_it(breaker: Breaker) -> None:
    with breaker.watching():
        broken(breaker)
    assert state(breaker) == "closed"


def test_the_refusal_names_the_cause_and_what_to_do(breaker: Breaker) -> None:
    broken(breaker)
    with pytest.raises(UpstreamTimeout) as refused, breaker.watching():
        pass
    error = refused.value
    assert "platform failed 3 in a row, the last with upstream_timeout (no connection to http://gateway)" in str(error)
    assert "tried in 10 s" in str(error)
    assert "rollbox doctor" in error.hint
    assert error.is_infra
    assert error.retry_after_ms == 10_000
    assert is_open(error)
    assert not is_open(Internal("another"))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code, is_open(again)) == (str(error), error.code, True)


def test_zero_never_stops_any(now: Now) -> None:
    breaker = Breaker(BreakerPolicy(failures=0, now=now))
    broken(breaker, 100)
    assert state(breaker) == "closed"


STEPS = st.lists(st.sampled_from(["success", "platform", "caller", "cancel", "wait"]), max_size=60)


@given(STEPS)
def test_at_most_one_is_sent_while_it_is_open_and_it_never_stays_shut(steps: list[str]) -> None:
    now = Now()
    breaker = Breaker(BreakerPolicy(failures=3, first_s=10, longest_s=30, now=now))
    ends: dict[str, BaseException | None] = {
        "success": None,
        "platform": Internal("no", request_id="r"),
        "caller": ImageNotFound("no", request_id="r"),
        "cancel": KeyboardInterrupt(),
    }
    for step in steps:
        if step == "wait":
            now.s += 7
            continue
        passes = state(breaker) != "open"
        assert attempt(breaker, ends[step]) == passes
        assert breaker.retry_after_s() <= 30
    now.s += 30
    assert attempt(breaker)
    assert state(breaker) == "closed"


async def test_a_client_stops_after_so_many_and_goes_on_when_the_platform_is_back(fake: FakeGateway, now: Now) -> None:
    policy = BreakerPolicy(failures=3, first_s=10, now=now)
    async with Client(retries=RetryPolicy(tries=1), breaker=policy) as client:
        fake.fail("create", *[Fault("internal")] * 3)
        for _ in range(3):
            with pytest.raises(Internal):
                await client.create("python")
        for _ in range(50):
            with pytest.raises(Internal, match="creates are stopped"):
                await client.create("python")
        assert fake.count("POST") == 3
        assert (await client.health()).creates == "open"
        now.s += 10
        async with await client.create("python"):
            health = await client.health()
    assert (health.ok, health.creates, health.why) == (True, "closed", "")


async def test_health_tells_and_never_raises(fake: FakeGateway) -> None:
    async with Client(retries=RetryPolicy(tries=1)) as client:
        fake.fail("info", Fault("draining"))
        health = await client.health()
        assert (health.ok, health.creates) == (False, "closed")
        assert "draining" in health.why
