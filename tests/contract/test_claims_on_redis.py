"""Claims by replicas that share a real Redis: at once, in any order, and with its answers lost."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from redis.asyncio import Redis

from controlplane.model import Limits, Usage
from controlplane.store import Claimed
from tests.contract.claim_steps import STEPS, Player, Step, check
from tests.contract.redis_replicas import replicas
from tests.contract.store_factory import sandbox, warm
from tests.support.redis_server import redis_server


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@given(left=STEPS, right=STEPS)
def test_no_race_gives_a_warm_sandbox_twice(url: str, left: list[Step], right: list[Step]) -> None:
    async def run() -> None:
        async with replicas(url) as stores:
            given, ids = list[str](), list[str]()

            async def play(number: int, steps: list[Step]) -> None:
                player = Player("ab"[number], stores[number], given, ids)
                for step in steps:
                    await player.perform(step)

            await asyncio.gather(play(0, left), play(1, right))
            await check(stores, given)

    asyncio.run(run())


async def test_two_crowds_share_what_is_warm(url: str) -> None:
    async with replicas(url) as stores:
        for number in range(50):
            await warm(stores[0], f"sb-{number}")
        wishes = [sandbox(f"sb-w{number}", key=f"k{number}", owner=f"o{number % 3}") for number in range(200)]
        claims = await asyncio.gather(*(stores[n % 2].claim(wish, Limits()) for n, wish in enumerate(wishes)))
        got = [one.sandbox.id for one in claims if isinstance(one, Claimed)]
        assert len(got) == len(set(got)) == 50
        assert await stores[0].usage(None) == Usage(50, 5_000, 50 * 256 << 20)


async def test_a_claim_that_is_repeated_after_a_lost_answer_gets_the_same(url: str) -> None:
    async with replicas(url) as stores:
        for number in range(2):
            await warm(stores[0], f"sb-{number}")
        for key in ("k", None):
            wish = sandbox(f"sb-w{key}", key=key)
            first = await stores[0].claim(wish, Limits())
            assert await stores[0].claim(wish, Limits()) == first
            assert isinstance(first, Claimed)
        assert (await stores[0].usage("alice")).sandboxes == 2


async def test_what_another_version_has_left_in_the_line_is_passed_over(url: str) -> None:
    async with replicas(url) as stores, Redis.from_url(url) as redis:
        wish = sandbox("sb-w")
        await redis.zadd(f"{{rollbox:t}}:warm:{wish.spec.template_hash()}", {"sb-gone": 0})
        assert await stores[0].claim(wish, Limits()) is None
        await warm(stores[0], "sb-1")
        assert isinstance(await stores[0].claim(wish, Limits()), Claimed)


async def test_an_owner_that_uses_nothing_leaves_nothing_behind(url: str) -> None:
    async with replicas(url) as stores, Redis.from_url(url) as redis:
        await warm(stores[0], "sb-1")
        claim = await stores[0].claim(sandbox("sb-w"), Limits())
        assert isinstance(claim, Claimed)
        assert await redis.keys("*used:pool*") == []
        assert await redis.keys("*:warm:*") == []
