"""Waiting for room: order, fairness, deadlines, callers who go away, quotas that change; over the real count."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import Problem
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.waiting import Answer, CreateQueue
from controlplane.lifecycle.waiting.create_queue import KEPT_MS
from controlplane.lifecycle.waiting.pace import LOOK_AGAIN_S
from controlplane.model import EndCause, Limits, Quota, Range, Sandbox, SandboxSpec, State, Usage
from controlplane.store import Admitted, Known, MemoryStore
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

SPEC = SandboxSpec(image="a", start_timeout_ms=60_000)
LONG = SandboxSpec(image="a", start_timeout_ms=3_600_000)
END = EndCause("deleted", "d", 1, "alice")


@dataclass
class Harness:
    """A queue of creates over a real count, and which were admitted."""

    store: MemoryStore
    quotas: dict[str, Quota] = field(default_factory=dict)
    total: int = 0
    away: bool = False
    admitted: list[Sandbox] = field(default_factory=list)
    calls: list[asyncio.Task[Answer]] = field(default_factory=list)
    disowned: list[Answer] = field(default_factory=list)
    waits: list[tuple[str, str, int]] = field(default_factory=list)
    ids: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self.queue = CreateQueue(self.store, self.limits, self._disown, VirtualClock(), self._note_wait)

    def limits(self, owner: str) -> Limits:
        return Limits(self.total, self.quotas.get(owner, Quota()))

    def wish(self, owner: str, spec: SandboxSpec = SPEC, key: str | None = None) -> Sandbox:
        now_ms = VirtualClock().now_ms()
        return Sandbox(
            f"sb-{next(self.ids)}", owner, spec, now_ms, now_ms + 10**9, spec.fingerprint(), idempotency_key=key
        )

    async def enter(self, wish: Sandbox) -> Answer:
        async def attempt(limits: Limits) -> Answer:
            await asyncio.sleep(0.001)
            if self.away:
                raise Problem("upstream_timeout", "the store is away")
            answer = await self.store.admit(wish, limits)
            if isinstance(answer, Admitted):
                self.admitted.append(answer.sandbox)
            return answer

        return await self.queue.enter(wish, attempt)

    def come(self, owner: str, spec: SandboxSpec = SPEC, key: str | None = None) -> asyncio.Task[Answer]:
        self.calls.append(call := asyncio.create_task(self.enter(self.wish(owner, spec, key))))
        return call

    async def end(self, sandbox: Sandbox, *, told: bool = True) -> None:
        after = replace(sandbox, state=State.ENDING, end=END, version=sandbox.version + 1)
        assert await self.store.replace(after, sandbox.version)
        if told:
            self.queue.on(Transition.of(sandbox, after, here=True))

    def _note_wait(self, room: str, outcome: str, wait_ms: int) -> None:
        self.waits.append((room, outcome, wait_ms // 1000))

    def _disown(self, answer: Answer) -> None:
        self.disowned.append(answer)


@asynccontextmanager
async def office(*, total: int = 0, shared: bool = False, **quotas: Quota) -> AsyncIterator[Harness]:
    async with asyncio.TaskGroup() as group:
        store = MemoryStore(VirtualClock())
        store.shared = shared
        made = Harness(store, dict(quotas), total)
        serving = group.create_task(made.queue.run())
        yield made
        for running in (serving, *made.calls):
            running.cancel()
        await asyncio.gather(*made.calls, return_exceptions=True)


def owners(admitted: list[Sandbox]) -> list[str]:
    return [one.owner for one in admitted]


async def test_where_there_is_room_nobody_waits() -> None:
    async with office(alice=Quota(sandboxes=2)) as place:
        assert isinstance(await place.come("alice"), Admitted)
        assert isinstance(await place.come("bob"), Admitted)
        assert len(place.queue) == 0


async def test_over_the_quota_it_waits_for_the_first_that_ends_in_order() -> None:
    async with office(alice=Quota(sandboxes=2)) as place:
        creates = [place.come("alice") for _ in range(10)]
        await asyncio.sleep(1)
        assert len(place.admitted) == 2
        assert [one.wish.id for one in place.queue.waiting("alice")] == [f"sb-{number}" for number in range(2, 10)]
        for _ in range(8):
            await place.end(place.admitted[-1])
            await asyncio.sleep(0.1)
        assert [one.id for one in place.admitted] == [f"sb-{number}" for number in range(10)]
        await asyncio.gather(*creates)


async def test_each_wait_is_told_with_what_was_missing() -> None:
    async with office(total=2, alice=Quota(sandboxes=1)) as queue:
        first = await queue.come("alice")
        second, third = queue.come("alice"), queue.come("alice")
        await asyncio.sleep(30)
        assert isinstance(first, Admitted)
        await queue.end(first.sandbox)
        assert isinstance(await second, Admitted)
        with pytest.raises(Problem):
            await third
        # Never tried at the store: the one before it lacked the same.
        assert queue.waits == [("sandboxes", "admitted", 30), ("sandboxes", "refused", 57)]


async def test_a_wait_while_the_store_is_away_is_told_as_that() -> None:
    async with office(alice=Quota(sandboxes=1)) as queue:
        await queue.come("alice")
        waits = queue.come("alice", key="k")
        await asyncio.sleep(1)
        queue.away = True
        queue.queue.changed()
        with pytest.raises(Problem):
            await waits
        assert queue.waits == [("store", "refused", 57)]


async def test_a_thousand_of_one_owner_and_five_of_another_share_what_is_freed() -> None:
    async with office(total=100) as place:
        for _ in range(1_000):
            place.come("alice")
        await asyncio.sleep(1)
        few = [place.come("bob") for _ in range(5)]
        await asyncio.sleep(1)
        assert owners(place.admitted) == ["alice"] * 100
        for sandbox in place.admitted[:8]:
            await place.end(sandbox)
        await asyncio.sleep(0.1)
        assert owners(place.admitted[100:]).count("bob") == 5
        assert all(one.done() for one in few)


async def test_another_owners_quota_is_nobody_elses_wait() -> None:
    async with office(alice=Quota(sandboxes=1), bob=Quota(sandboxes=1)) as place:
        for _ in range(50):
            place.come("alice")
        assert isinstance(await place.come("bob"), Admitted)
        assert isinstance(await place.come("carol"), Admitted)


async def test_a_deadline_refuses_with_the_place_and_leaves_the_line() -> None:
    async with office(alice=Quota(sandboxes=1)) as place:
        await place.come("alice")
        place.come("alice")
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="quota_exceeded: alice uses 1 sandbox of 1") as caught:
            await place.enter(place.wish("alice", SPEC.model_copy(update={"start_timeout_ms": 5_000})))
        assert (caught.value.details["position"], caught.value.details["waiting"]) == ("2", "2")
        assert caught.value.details["waited_ms"] == "3749"
        assert len(place.queue) == 1


async def test_more_than_the_quota_is_refused_at_once() -> None:
    async with office(alice=Quota(cpu_millicores=1000)) as place:
        greedy = SandboxSpec(image="a", cpu_millicores=Range(request=2000, limit=2000))
        with pytest.raises(Problem, match="quota_exceeded: this needs 2 cores"):
            await place.come("alice", greedy)
        assert VirtualClock().now_ms() % 1000 < 10


async def test_a_quota_that_is_lowered_below_its_use_ends_nothing_and_lets_nothing_new_in() -> None:
    async with office(alice=Quota(sandboxes=4)) as place:
        for _ in range(4):
            await place.come("alice")
        place.quotas["alice"] = Quota(sandboxes=2)
        place.queue.changed()
        waits = place.come("alice")
        for sandbox in place.admitted[:2]:
            await place.end(sandbox)
            await asyncio.sleep(5)
            assert not waits.done()
        assert await place.store.usage("alice") == Usage.of(place.admitted[2]) + Usage.of(place.admitted[3])
        await place.end(place.admitted[2])
        assert isinstance(await waits, Admitted)


async def test_a_raised_quota_lets_in_at_once_and_a_lowered_one_refuses_what_can_never_be() -> None:
    async with office(alice=Quota(sandboxes=1, cpu_millicores=4000)) as place:
        await place.come("alice")
        fits, too_large = place.come("alice"), place.come("alice", SandboxSpec(image="a", cpu_millicores=TWO))
        await asyncio.sleep(0.1)
        place.quotas["alice"] = Quota(sandboxes=9, cpu_millicores=1000)
        place.queue.changed()
        assert isinstance(await fits, Admitted)
        with pytest.raises(Problem, match="needs 2 cores, and the quota of alice is 1 core:"):
            await too_large


TWO = Range(request=2000, limit=2000)


async def test_lost_news_cost_a_second() -> None:
    async with office(alice=Quota(sandboxes=1)) as place:
        await place.come("alice")
        waits = place.come("alice")
        await asyncio.sleep(0.1)
        began_s = asyncio.get_running_loop().time()
        await place.end(place.admitted[0], told=False)
        await waits
        assert asyncio.get_running_loop().time() - began_s <= LOOK_AGAIN_S + 0.1


async def test_a_caller_who_goes_away_leaves_his_place_to_the_next() -> None:
    async with office(alice=Quota(sandboxes=1)) as place:
        await place.come("alice")
        gone, waits = place.come("alice"), place.come("alice")
        await asyncio.sleep(0.1)
        gone.cancel()
        await place.end(place.admitted[0])
        assert isinstance(await waits, Admitted)
        assert (len(place.admitted), place.disowned) == (2, [])


async def test_a_caller_who_goes_away_in_his_turn_is_told_of() -> None:
    async with office(alice=Quota(sandboxes=1)) as place:
        await place.come("alice")
        gone = place.come("alice")
        await asyncio.sleep(0.1)
        await place.end(place.admitted[0])
        # The store is being asked.
        await asyncio.sleep(0.0005)
        gone.cancel()
        await asyncio.sleep(1)
        assert place.disowned == [Admitted(place.admitted[1])]


async def test_who_comes_back_with_his_key_soon_has_his_place_again() -> None:
    async with office(alice=Quota(sandboxes=1)) as place:
        await place.come("alice")
        lost = place.come("alice", key="k")
        await asyncio.sleep(0.1)
        for _ in range(3):
            place.come("alice")
        await asyncio.sleep(0.1)
        lost.cancel()
        await asyncio.sleep(KEPT_MS / 2000)
        place.come("alice", key="k")
        await asyncio.sleep(0.1)
        assert place.queue.waiting("alice")[0].wish.idempotency_key == "k"


async def test_one_key_waits_once_and_both_callers_get_the_same() -> None:
    async with office(alice=Quota(sandboxes=1)) as place:
        await place.come("alice")
        one, two = place.come("alice", key="k"), place.come("alice", key="k")
        other = place.come("alice", SandboxSpec(image="b"), key="k")
        await asyncio.sleep(0.1)
        assert len(place.queue) == 1
        await place.end(place.admitted[0])
        assert await one == Admitted(place.admitted[1])
        assert await two == Known(place.admitted[1])
        with pytest.raises(Problem, match="conflict: key k was used"):
            await other


async def test_a_key_that_is_taken_passes_the_line() -> None:
    async with office(alice=Quota(sandboxes=1)) as place:
        await place.come("alice", key="k")
        place.come("alice")
        await asyncio.sleep(0.1)
        assert await place.come("alice", key="k") == Known(place.admitted[0])


async def test_a_store_that_is_away_costs_nobody_his_place() -> None:
    async with office(alice=Quota(sandboxes=1)) as place:
        first = await place.come("alice")
        assert isinstance(first, Admitted)
        waiting = [place.come("alice", key=key) for key in ("k", "l")]
        await asyncio.sleep(0.1)
        place.away = True
        await place.end(first.sandbox)
        await asyncio.sleep(10)
        assert [one.done() for one in waiting] == [False, False]
        place.away = False
        assert await waiting[0] == Admitted(place.admitted[1])
        assert not waiting[1].done()


async def test_a_replica_that_leaves_sends_everybody_away() -> None:
    async with office(alice=Quota(sandboxes=1)) as place:
        await place.come("alice")
        waiting = [place.come("alice", key=key) for key in ("k", "l", None)]
        await asyncio.sleep(0.1)
        place.queue.leave()
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [one.code for one in told if isinstance(one, Problem)] == ["draining"] * 3
        assert len(place.queue) == 0


# Who comes (with how many cores), what ends (the oldest of), a quota that changes, time that goes.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.sampled_from(["alice", "bob", "carol"]), st.integers(1, 3)),
        st.tuples(st.just("end"), st.sampled_from(["alice", "bob", "carol"]), st.just(0)),
        st.tuples(st.just("gone"), st.sampled_from(["alice", "bob", "carol"]), st.just(0)),
        st.tuples(st.just("quota"), st.sampled_from(["alice", "bob"]), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 3)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(0, 8))
def test_no_history_passes_a_limit_and_everybody_is_served_in_the_end(
    steps: list[tuple[str, str, int]], total: int
) -> None:
    async def history() -> None:
        async with office(total=total, alice=Quota(cpu_millicores=4000), bob=Quota(sandboxes=3)) as place:
            for step in steps:
                await play(place, *step)
                in_all = await place.store.usage(None)
                assert not total or in_all.sandboxes <= total
            place.quotas.clear()
            place.queue.changed()
            while len(place.queue):
                await end_oldest(place, None)
                await asyncio.sleep(0.01)
            admitted = [one.result() for one in place.calls if one.done() and not one.cancelled()]
            assert len(admitted) == len(place.admitted)
            for owner in ("alice", "bob", "carol"):
                theirs = [int(one.id.removeprefix("sb-")) for one in place.admitted if one.owner == owner]
                assert theirs == sorted(theirs)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(history())


async def play(place: Harness, what: str, owner: str, number: int) -> None:
    before = await place.store.usage(owner)
    match what:
        case "come":
            place.come(owner, LONG.model_copy(update={"cpu_millicores": Range(request=number * 1000, limit=4000)}))
        case "end":
            await end_oldest(place, owner)
        case "gone":
            for call in [one for one in place.calls if not one.done()][-1:]:
                call.cancel()
        case "quota":
            place.quotas[owner] = Quota(sandboxes=number)
            place.queue.changed()
        case _:
            await asyncio.sleep(number)
    await asyncio.sleep(0.05)
    used, quota = await place.store.usage(owner), place.quotas.get(owner, Quota())
    # Above its quota only when that was lowered, and then nothing new came in.
    over = Usage().excess(used, quota)
    assert over is None or getattr(used, over) <= getattr(before, over)


async def end_oldest(place: Harness, owner: str | None) -> None:
    running = await place.store.find(owner, {}, [State.REQUESTED])
    if running:
        await place.end(running[0])


async def test_replicas_ask_in_the_order_of_their_first_waiters() -> None:
    async with asyncio.TaskGroup() as group:
        store = MemoryStore(VirtualClock())
        store.shared = True
        replicas = [Harness(store, {"alice": Quota(sandboxes=1)}) for _ in range(2)]
        loops = [group.create_task(one.queue.run()) for one in replicas]
        replicas[1].ids = count(100)
        await replicas[0].come("alice")
        older = replicas[1].come("alice")
        await asyncio.sleep(0.5)
        younger = replicas[0].come("alice")
        await asyncio.sleep(0.01)
        before = replicas[0].admitted[0]
        # The end happens at the first replica; the other one hears of it a millisecond later.
        await replicas[0].end(before)
        await asyncio.sleep(0.001)
        replicas[1].queue.on(Transition.of(None, replace(before, state=State.ENDING), here=False))
        await older
        assert not younger.done()
        for one in (*loops, younger):
            one.cancel()
