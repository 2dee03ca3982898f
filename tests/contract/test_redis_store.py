"""The store of many replicas on a real Redis: the suite of all stores, races, news, loss and absence."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as AwayError
from structlog.typing import EventDict

from controlplane.errors import Problem
from controlplane.model import GROUP, EndCause, Limits, State, Usage
from controlplane.store import (
    Admitted,
    Changed,
    Miscount,
    RedisStore,
    Resync,
    UnreadableRecordError,
    Withdrawn,
    calls,
    opening,
)
from controlplane.store.calls import TRIES
from controlplane.store.line import Line, Reply, command
from controlplane.store.rows import dump
from tests.contract.redis_replicas import ShiftedClock, replicas
from tests.contract.replicas_suite import ReplicasSuite, hearing
from tests.contract.store_factory import DAY_S, Advance, Lose, Now, ended, sandbox, starting
from tests.contract.store_suite import StoreSuite
from tests.support.eventually import eventually
from tests.support.redis_server import redis_server
from tests.support.refilled import refilled
from tests.support.virtual_time import VirtualTimeLoop


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def pair(url: str, clock: ShiftedClock) -> AsyncIterator[list[RedisStore]]:
    async with replicas(url, clock=clock) as opened:
        yield opened


@pytest.fixture
def now_ms(clock: ShiftedClock) -> Now:
    return clock.now_ms


@pytest.fixture
def advance(clock: ShiftedClock) -> Advance:
    async def advance(by_s: float) -> None:
        clock.ahead_ms += round(by_s * 1000)

    return advance


class TestRedisStore(StoreSuite):
    """See `StoreSuite`."""

    @pytest.fixture
    def store(self, pair: list[RedisStore]) -> RedisStore:
        return pair[0]

    @pytest.fixture
    def lose(self, store: RedisStore, url: str) -> Lose:
        async def lose() -> None:
            async with Redis.from_url(url) as redis:
                await redis.delete(f"{store._calls.prefix}intact")

        return lose


class TestRedisReplicas(ReplicasSuite):
    """See `ReplicasSuite`."""

    @pytest.fixture
    def empty(self, url: str) -> Lose:
        async def empty() -> None:
            async with Redis.from_url(url) as redis:
                await redis.flushall()

        return empty


async def test_use_that_is_counted_wrong_is_what_the_records_say(pair: list[RedisStore], url: str) -> None:
    one, two = pair
    for number, owner in enumerate(("alice", "alice", "bob")):
        await one.admit(sandbox(f"sb-{number}", owner=owner), Limits())
    right = {owner: await two.usage(owner) for owner in ("alice", "bob", None)}
    assert await one.replace(ended(sandbox("sb-2", owner="bob")), 0)
    async with Redis.from_url(url) as redis:
        await redis.hincrby(f"{one._calls.prefix}used:alice", "sandboxes", 3)
        for resource, used in asdict(right["bob"]).items():
            await redis.hset(f"{one._calls.prefix}used:bob", resource, used)
        await redis.delete(f"{one._calls.prefix}used:")
    found = {wrong.owner: wrong for wrong in await two.recount()}
    assert found["alice"] == Miscount("alice", right["alice"] + Usage(3), right["alice"])
    assert found["bob"] == Miscount("bob", right["bob"], Usage())
    assert found[None] == Miscount(None, Usage(), right["alice"])
    assert {owner: await one.usage(owner) for owner in right} == {**right, "bob": Usage(), None: right["alice"]}
    assert await one.recount() == []


async def test_what_another_version_has_written_is_counted_once(pair: list[RedisStore], url: str) -> None:
    one, two = pair
    await one.admit(sandbox("sb-1"), Limits())
    there = await one.usage("alice")
    async with Redis.from_url(url) as redis:
        await redis.hdel(f"{one._calls.prefix}s:sb-1", "weighed")
        await redis.delete(f"{one._calls.prefix}used:alice", f"{one._calls.prefix}used:")
    assert {wrong.owner for wrong in await two.recount()} == {"alice", None}
    assert await one.usage("alice") == there
    assert await one.replace(ended(sandbox("sb-1")), 0)
    assert await one.usage("alice") == await one.usage(None) == Usage()


async def test_what_a_group_has_left_is_not_kept_for_ever(pair: list[RedisStore], clock: ShiftedClock) -> None:
    store = pair[0]
    index = f"{store._calls.prefix}group:alice\ng"
    for number in range(3):
        await store.admit(sandbox(f"sb-{number}", labels={GROUP: "g"}), Limits())
        await store.replace(ended(sandbox(f"sb-{number}", labels={GROUP: "g"})), 0)
        clock.ahead_ms += DAY_S * 1000 // 2 + 1
    pipe = store._calls.pipe()
    pipe.zrange(index, 0, -1)
    pipe.pttl(index)
    ids, left_ms = await store._calls.piped(pipe)
    assert ids == ["sb-1", "sb-2"]
    assert 0 < left_ms <= DAY_S * 1000


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "next", "end", "confirm", "take", "free", "restore"]), *[st.integers(0, 5)] * 2
    ),
    min_size=10,
    max_size=40,
)
LIMIT = 3
NEXT = {State.REQUESTED: State.QUEUED, State.QUEUED: State.STARTING, State.STARTING: State.RUNNING}


async def perform(store: RedisStore, step: Step) -> None:
    """One thing that a replica may do; whatever comes of it is fine."""
    what, which, other = step
    name = f"sb-{which}"
    if what == "admit":
        await store.admit(sandbox(f"{name}-{other}", key=f"k{which}"), Limits(LIMIT))
        return
    if what == "take":
        await store.take_slot(name, LIMIT, 1 << 52)
        return
    if what == "free":
        await store.free_slot(name)
        return
    if what == "restore":
        await store.restore(replace(sandbox(f"{name}-r", key=f"k{which}"), state=State.RUNNING))
        return
    found = await store.by_key("alice", f"k{which}")
    if found is None:
        return
    end = found.end or EndCause("deleted", "d", 1, "alice")
    state = {"end": State.ENDING, "confirm": State.ENDED}.get(what, NEXT.get(found.state, found.state))
    after = replace(found, state=state, version=found.version + 1, end=None if what == "next" else end)
    if what == "end" and not found.state.counted:
        return
    await store.replace(after, found.version)


async def check(stores: list[RedisStore]) -> None:
    """What must hold, whatever happened: counts are what is on record, indexes agree, slots are within the limit."""
    everything = await stores[0].find(None, {})
    counts = await stores[1].counts()
    assert counts == {state: sum(one.state is state for one in everything) for state in State}
    assert [one.id for one in await stores[1].find("alice", {})] == [one.id for one in everything]
    keys = [(await stores[0].by_key("alice", f"k{number}")) for number in range(6)]
    assert len({one.id for one in keys if one is not None}) == sum(one is not None for one in keys)


@given(left=STEPS, right=STEPS)
def test_whatever_two_replicas_do_at_once_counts_stay_true(url: str, left: list[Step], right: list[Step]) -> None:
    async def run() -> None:
        async with replicas(url) as stores, Redis.from_url(url) as redis:

            async def one(number: int, steps: list[Step]) -> None:
                for step in steps:
                    await perform(stores[number], step)
                    assert await redis.zcard("{rollbox:t}:slots") <= LIMIT

            await asyncio.gather(one(0, left), one(1, right))
            await check(stores)

    asyncio.run(run())


async def test_a_lost_subscription_is_taken_up_again_and_says_so(pair: list[RedisStore], url: str) -> None:
    one, two = pair
    async with hearing(two) as heard, Redis.from_url(url) as redis:
        await redis.client_kill_filter(_type="pubsub")
        await eventually(lambda: Resync() in heard)
        first = sandbox("sb-1")
        await one.admit(first, Limits())
        await one.replace(ended(first), 0)
        await eventually(lambda: any(isinstance(news, Changed) for news in heard))


async def test_what_comes_while_a_connection_rests_is_read_together(url: str) -> None:
    line = Line(url, 60)
    try:
        await line.exchange(command("SUBSCRIBE", "news"), 1)
        resting = asyncio.create_task(line.rest(3600))
        async with Redis.from_url(url) as redis:
            for word in ("a", "b"):
                assert await redis.publish("news", word) == 1
            await redis.ping()
        resting.cancel()
        await asyncio.wait([resting])
        assert await line.some(60) == [["message", "news", "a"], ["message", "news", "b"]]
    finally:
        await line.close()
    await line.rest(3600)  # there is nothing to rest from


async def test_a_connection_that_is_lost_while_it_rests_says_so(url: str) -> None:
    line = Line(url, 60)
    try:
        await line.exchange(command("SUBSCRIBE", "news"), 1)
        async with Redis.from_url(url) as redis:
            await redis.client_kill_filter(_type="pubsub")
        await line.rest(0.001)
        with pytest.raises(AwayError, match="closed"):
            await line.some(60)
    finally:
        await line.close()


async def test_names_of_leases_go_a_minute_after_they_lapsed(pair: list[RedisStore], url: str) -> None:
    assert await pair[0].lease("sweep", "a", 3_600_000)
    async with Redis.from_url(url) as redis:
        assert 3_600_000 < await redis.pttl("{rollbox:t}:lease:sweep") <= 3_660_000


@pytest.mark.parametrize("touched", [False, True])
async def test_what_a_version_without_counters_wrote_is_never_taken_off_uncounted(
    pair: list[RedisStore], url: str, *, touched: bool
) -> None:
    store, old, new = pair[0], sandbox("sb-1"), sandbox("sb-2")
    await store.admit(old, Limits())
    async with Redis.from_url(url) as redis:
        await redis.hdel("{rollbox:t}:s:sb-1", "weighed", "cpu", "memory", "gpu", "template", "own")
        await redis.delete("{rollbox:t}:used:", "{rollbox:t}:used:alice")
    await store.admit(new, Limits())
    one = await store.usage("alice")
    assert one.sandboxes == 1
    if touched:
        old = replace(old, state=State.RUNNING, version=1)
        assert await store.replace(old, 0)
        assert await store.usage("alice") == one + Usage.of(old)
    assert await store.replace(ended(old), old.version)
    assert await store.usage("alice") == await store.usage(None) == one
    assert await store.replace(ended(new), 0)
    assert await store.usage("alice") == await store.usage(None) == Usage()


async def test_what_a_version_without_counters_ends_is_taken_off_when_it_goes(pair: list[RedisStore], url: str) -> None:
    store, one = pair[0], sandbox("sb-1")
    await store.admit(one, Limits())
    async with Redis.from_url(url) as redis:
        record = dump(replace(ended(one), state=State.ENDING))
        await redis.hset("{rollbox:t}:s:sb-1", mapping={"state": "ending", "version": 1, "record": record})
    assert await store.replace(replace(ended(one), version=2), 1)
    assert await store.usage("alice") == await store.usage(None) == Usage()


async def test_a_redis_that_does_not_say_which_run_it_is_is_used_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    logger = SimpleNamespace(warning=lambda event, **_: told.append(event))
    monkeypatch.setattr("controlplane.store.calls.structlog", SimpleNamespace(get_logger=lambda _: logger))
    with redis_server(tmp_path) as url:
        async with Redis.from_url(url) as redis:
            await redis.execute_command("ACL", "SETUSER", "default", "-info")  # type: ignore[no-untyped-call]
        async with RedisStore.open(url, installation="t", clock=ShiftedClock()) as store:
            await refilled(store)
            assert await store.get("sb-1") is None
    assert told == ["Redis refuses INFO: a loss of data in a restart of Redis will not be noticed"]


async def test_a_crowd_of_calls_shares_messages_and_one_that_gives_up_harms_nobody(
    pair: list[RedisStore], url: str
) -> None:
    async with Redis.from_url(url) as redis:
        before = (await redis.info("clients"))["connected_clients"]
        crowd = [asyncio.create_task(pair[0].admit(sandbox(f"sb-{number}"), Limits())) for number in range(300)]
        await asyncio.sleep(0)
        crowd[7].cancel()
        answers = await asyncio.gather(*crowd, return_exceptions=True)
        assert (await redis.info("clients"))["connected_clients"] <= before + 1
    assert isinstance(answers.pop(7), asyncio.CancelledError)
    assert all(isinstance(answer, Admitted) for answer in answers)
    assert await pair[0].get("sb-299") == sandbox("sb-299")


async def test_scripts_are_brought_again_after_a_restart(pair: list[RedisStore], url: str) -> None:
    async with Redis.from_url(url) as redis:
        await redis.script_flush()
    assert isinstance(await pair[0].admit(sandbox("sb-1"), Limits()), Admitted)


async def test_tombstones_leave_a_few_at_every_step(pair: list[RedisStore], clock: ShiftedClock, url: str) -> None:
    for number in range(50):
        one = sandbox(f"sb-{number}", key=f"k{number}")
        await pair[0].admit(one, Limits())
        await pair[0].replace(ended(one), 0)
    clock.ahead_ms += DAY_S * 1000 + 1
    assert await pair[0].find("alice", {}) == []
    assert await pair[0].by_key("alice", "k49") is None
    for _ in range(3):
        await pair[0].counts()
    assert await pair[0].recount() == []
    async with Redis.from_url(url) as redis:
        left = {str(key).partition("}:")[2].rstrip("'") for key in await redis.keys("*")}
    assert left == {"counts", "intact", "run"}


async def test_a_full_redis_takes_nothing_new_and_still_takes_ends(pair: list[RedisStore], url: str) -> None:
    one = sandbox("sb-1", key="k")
    await pair[0].admit(one, Limits())
    async with Redis.from_url(url) as redis:
        await redis.config_set("maxmemory", 1)
        try:
            with pytest.raises(Problem, match="maxmemory"):
                await pair[0].admit(sandbox("sb-2"), Limits())
            assert await pair[0].withdraw("alice", "k") == one
            assert await pair[0].lease("sweep", "r0", 1_000)
            assert await pair[0].take_slot("sb-1", 4, pair[0]._clock.now_ms() + 1_000)
            await pair[0].free_slot("sb-1")
            assert await pair[0].replace(ended(one), 0)
        finally:
            await redis.config_set("maxmemory", 0)
    assert (await pair[0].counts())[State.ENDED] == 1


async def test_what_is_known_of_starts_that_are_over_does_not_pile_up(pair: list[RedisStore], url: str) -> None:
    store, until_ms = pair[0], pair[0]._clock.now_ms() + 60_000
    for number in range(200):
        name = f"sb-{number}"
        await starting(store, name)
        assert await store.take_slot(name, 8, until_ms, 4, "k")
        await store.place_slot(name, "n", until_ms, 4, "k")
        await store.free_slot(name)
    async with Redis.from_url(url) as redis:
        lengths = {str(key).rpartition(":")[2].rstrip("'"): key for key in await redis.keys("*}:[cp]*")}
        left = {name: await redis.hlen(key) for name, key in lengths.items() if name in ("came", "placed")}
    assert max(left.values()) < 100


async def test_withdrawn_keys_make_room_for_one_another(pair: list[RedisStore], url: str) -> None:
    now_ms = pair[0]._clock.now_ms()
    async with Redis.from_url(url) as redis:
        await redis.zadd("{rollbox:t}:withdrawn", {f"alice\n{number}": now_ms - 1 for number in range(100_000)})
        await pair[0].withdraw("alice", "the last")
        assert await redis.zcard("{rollbox:t}:withdrawn") == 100_000
    assert await pair[0].admit(sandbox("sb-1", key="the last"), Limits()) == Withdrawn()


async def test_a_redis_that_is_away_is_named_and_not_asked_once_more_for_each_of_a_crowd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, tries = 0, 0
    exchange = Line.exchange

    def failed() -> None:
        nonlocal failures
        failures += 1

    async def counted(line: Line, message: bytes, count: int) -> list[Reply]:
        nonlocal tries
        tries += 1
        return await exchange(line, message, count)

    with redis_server(tmp_path) as url:
        async with RedisStore.open(url, installation="t", clock=ShiftedClock(), failed=failed) as store:
            await refilled(store)
            async with Redis.from_url(url) as redis:
                with pytest.raises(Exception, match="."):
                    await redis.execute_command("SHUTDOWN", "NOSAVE")  # type: ignore[no-untyped-call]
            monkeypatch.setattr(Line, "exchange", counted)
            with pytest.raises(Problem, match="upstream_timeout: Redis at .*redis.sock did not do what was asked"):
                await store.get("sb-1")
            assert failures == 1
            questions = [store.get(f"sb-{number}") for number in range(3_000)]
            crowd = await asyncio.gather(*questions, return_exceptions=True)
            assert all(isinstance(answer, Problem) for answer in crowd)
            assert tries == 2 * (1 + TRIES)


async def test_a_redis_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CALL_TIMEOUT_S", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(silent, tmp_path / "silent.sock"):
        with pytest.raises(Problem, match="upstream_timeout"):
            async with (
                asyncio.timeout(60),
                RedisStore.open(f"unix://{tmp_path}/silent.sock", installation="t", clock=ShiftedClock()),
            ):
                pass


async def test_a_redis_that_comes_up_later_is_waited_for_and_that_is_said_once(
    tmp_path: Path, said: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "AGAIN_S", 0.01)
    load, tries = calls.Calls.load, list[None]()

    async def counted(of: calls.Calls) -> None:
        tries.append(None)
        await load(of)

    monkeypatch.setattr(calls.Calls, "load", counted)
    opened = asyncio.create_task(_opened_and_closed(f"unix://{tmp_path}/redis.sock", within_s=240))
    await eventually(lambda: len(tries) > 2)
    with redis_server(tmp_path):
        await opened
    assert [one["event"] for one in said] == ["waiting for Redis", "connected to Redis"]
    assert "redis.sock" in said[0]["at"]


def test_a_redis_that_does_not_come_up_in_time_is_named(tmp_path: Path, said: list[EventDict]) -> None:
    # Where there is no socket nothing is on its way: time may jump.
    with (
        asyncio.Runner(loop_factory=VirtualTimeLoop) as runner,
        pytest.raises(Problem, match="upstream_timeout: Redis at .*redis.sock"),
    ):
        runner.run(_opened_and_closed(f"unix://{tmp_path}/redis.sock", within_s=20))
    assert [one["event"] for one in said] == ["waiting for Redis"]


async def _opened_and_closed(url: str, within_s: float) -> None:
    async with RedisStore.open(url, installation="t", clock=ShiftedClock(), within_s=within_s):
        pass


ODD = {
    "another version's": '{"id": "sb-2"}',
    "damaged": "no json",
    "of an unknown state": dump(sandbox("sb-2")).replace("requested", "hibernated"),
    "of an unknown cause": dump(ended(sandbox("sb-2"))).replace("deleted", "abducted"),
}


@pytest.mark.parametrize("record", ODD.values(), ids=ODD.keys())
async def test_a_record_that_cannot_be_read_is_left_out_and_told_once(
    url: str, record: str, said: list[EventDict]
) -> None:
    counted: list[None] = []
    async with (
        replicas(url, 1) as (other,),
        RedisStore.open(url, installation="t", clock=ShiftedClock(), unreadable=lambda: counted.append(None)) as store,
        Redis.from_url(url) as redis,
    ):
        for number in (1, 2, 3):
            await other.admit(sandbox(f"sb-{number}", key=f"k{number}"), Limits())
        await redis.hset("{rollbox:t}:s:sb-2", "record", record)
        for _ in range(3):
            assert [one.id for one in await store.find(None, {})] == ["sb-1", "sb-3"]
            for question in (store.get("sb-2"), store.admit(sandbox("sb-4", key="k2"), Limits())):
                with pytest.raises(UnreadableRecordError, match="internal: the record of .* cannot be read"):
                    await question
        assert {one.get("sandbox_id") for one in said} <= {"sb-2", ""}
        assert len(counted) == len(said) <= 2
        # Nobody who cannot read it ends it.
        assert "sb-2" in (await other.due(10, 0)).expired
        assert (await store.due(10, 0)).expired == ("sb-1", "sb-3")
        # Once it can be read it is as any other.
        await redis.hset("{rollbox:t}:s:sb-2", "record", dump(sandbox("sb-2", key="k2")))
        assert await store.get("sb-2") == sandbox("sb-2", key="k2")
        assert len((await store.due(10, 0)).expired) == 3
