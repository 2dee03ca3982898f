"""What every store must do about warm sandboxes, owners' quotas and what they use; `StoreSuite` has the rest."""

import asyncio
from dataclasses import replace

import pytest

from controlplane.model import EndCause, Limits, Quota, SandboxSpec, State, Usage, pool_owner
from controlplane.model.states import Change, Event, apply
from controlplane.store import Admitted, Claimed, Fence, FencedError, Full, Known, Store, Withdrawn
from tests.contract.store_factory import DAY_S, Advance, Now, ended, sandbox, starting, warm

MIB = 1 << 20
ONE = Usage(1, 100, 256 * MIB, 0, 0)
ENV = SandboxSpec(image="a", labels={"l": "m"}, ttl_ms=5_000)


class ClaimsSuite:
    """The part of the conformance suite that is about claims."""

    async def test_without_a_warm_one_nothing_is_claimed(self, store: Store) -> None:
        await starting(store, "sb-1")
        assert await store.claim(sandbox("sb-w"), Limits()) is None
        assert await store.usage("alice") == Usage()
        assert await store.by_key("alice", "k") is None

    async def test_a_claim_binds_and_keeps_the_rest(self, store: Store, now_ms: Now) -> None:
        before = await warm(store, "sb-1")
        wish = replace(sandbox("sb-w", key="k", at_ms=7), spec=ENV, expires_at_ms=1 << 50)
        asked_ms = now_ms()
        claim = await store.claim(wish, Limits())
        assert isinstance(claim, Claimed)
        at_ms = claim.sandbox.claimed_at_ms or 0
        assert asked_ms <= at_ms <= now_ms()
        assert claim.sandbox == apply(before, Event.CLAIM, Change(wish=wish, claimed_at_ms=at_ms))
        assert await store.get("sb-1") == await store.by_key("alice", "k") == claim.sandbox
        assert await store.get("sb-w") is None
        assert await store.claim(sandbox("sb-x"), Limits()) is None

    async def test_what_was_ready_first_is_claimed_first(self, store: Store) -> None:
        for number, ready_at_ms in enumerate((30, 10, 20)):
            await warm(store, f"sb-{number}", ready_at_ms=ready_at_ms)
        claims = [await store.claim(sandbox(f"sb-w{number}"), Limits()) for number in range(4)]
        assert [one.sandbox.id for one in claims if isinstance(one, Claimed)] == ["sb-1", "sb-2", "sb-0"]
        assert claims[3] is None

    async def test_the_warm_ones_of_a_template_are_counted(self, store: Store) -> None:
        for number in range(3):
            await warm(store, f"sb-{number}")
        await starting(store, "sb-3")
        assert await store.warm(SandboxSpec(image="a").template_hash()) == 3
        assert await store.warm(SandboxSpec(image="a", pids_limit=100).template_hash()) == 0
        await store.claim(sandbox("sb-w"), Limits())
        assert await store.warm(SandboxSpec(image="a").template_hash()) == 2

    async def test_another_template_is_not_claimed(self, store: Store) -> None:
        await warm(store, "sb-1")
        other = SandboxSpec(image="a", pids_limit=100)
        assert await store.claim(replace(sandbox("sb-w"), spec=other), Limits()) is None

    async def test_none_is_claimed_before_its_moment(self, store: Store, advance: Advance, now_ms: Now) -> None:
        await warm(store, "sb-1", ready_at_ms=now_ms() + 6_000)
        assert await store.claim(sandbox("sb-w"), Limits()) is None
        assert await store.warm(SandboxSpec(image="a").template_hash()) == 0
        await advance(7)
        assert await store.warm(SandboxSpec(image="a").template_hash()) == 1
        assert isinstance(await store.claim(sandbox("sb-w"), Limits()), Claimed)

    async def test_one_whose_end_has_begun_is_not_claimed(self, store: Store) -> None:
        first = await warm(store, "sb-1")
        assert await store.replace(ended(first), first.version)
        assert await store.claim(sandbox("sb-w"), Limits()) is None

    async def test_a_claim_overtakes_whoever_wanted_to_retire_it(self, store: Store) -> None:
        first = await warm(store, "sb-1")
        assert isinstance(await store.claim(sandbox("sb-w"), Limits()), Claimed)
        assert not await store.replace(ended(first), first.version)

    async def test_a_known_key_claims_nothing(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, Limits())
        await warm(store, "sb-2")
        assert await store.claim(sandbox("sb-w", key="k"), Limits()) == Known(first)
        assert isinstance(await store.claim(sandbox("sb-x", key="k", owner="bob"), Limits()), Claimed)

    async def test_the_key_of_a_claim_is_known_to_creates_and_claims(self, store: Store) -> None:
        await warm(store, "sb-1")
        await warm(store, "sb-2")
        claim = await store.claim(sandbox("sb-w", key="k"), Limits())
        assert isinstance(claim, Claimed)
        assert await store.claim(sandbox("sb-x", key="k"), Limits()) == Known(claim.sandbox)
        assert await store.admit(sandbox("sb-y", key="k"), Limits()) == Known(claim.sandbox)
        assert await store.withdraw("alice", "k") == claim.sandbox

    async def test_a_withdrawn_key_claims_nothing(self, store: Store) -> None:
        await warm(store, "sb-1")
        await store.withdraw("alice", "k")
        assert await store.claim(sandbox("sb-w", key="k"), Limits()) == Withdrawn()
        assert (await store.counts())[State.WARM] == 1

    async def test_the_key_of_a_claim_stays_for_a_day_after_its_end(self, store: Store, advance: Advance) -> None:
        await warm(store, "sb-1")
        claim = await store.claim(sandbox("sb-w", key="k"), Limits())
        assert isinstance(claim, Claimed)
        await advance(10 * DAY_S)
        assert await store.replace(ended(claim.sandbox), claim.sandbox.version)
        await advance(DAY_S - 60)
        assert await store.by_key("alice", "k") == ended(claim.sandbox)
        await advance(120)
        assert await store.by_key("alice", "k") is None

    async def test_a_crowd_gets_every_warm_one_once(self, store: Store) -> None:
        for number in range(20):
            await warm(store, f"sb-{number}")
        claims = await asyncio.gather(*(store.claim(sandbox(f"sb-w{number}"), Limits()) for number in range(30)))
        got = [one.sandbox.id for one in claims if isinstance(one, Claimed)]
        assert len(got) == len(set(got)) == 20
        assert await store.usage("alice") == Usage(20, 2000, 20 * 256 * MIB)

    async def test_warm_ones_count_in_all_and_against_no_owner(self, store: Store) -> None:
        await warm(store, "sb-1")
        assert await store.admit(sandbox("sb-2"), Limits(1)) == Full(1, 1)
        assert await store.usage("alice") == Usage()
        assert await store.usage(pool_owner("p")) == await store.usage(None) == ONE
        # Room in all is not asked for: it has it.
        assert isinstance(await store.claim(sandbox("sb-w"), Limits(1, Quota(sandboxes=1))), Claimed)
        assert await store.usage(pool_owner("p")) == Usage()
        assert await store.usage("alice") == await store.usage(None) == ONE

    async def test_a_quota_bounds_claims_of_its_owner(self, store: Store) -> None:
        for number in range(3):
            await warm(store, f"sb-{number}")
        limits = Limits(quota=Quota(sandboxes=1, starting=1))
        assert isinstance(await store.claim(sandbox("sb-w"), limits), Claimed)
        assert await store.claim(sandbox("sb-x"), limits) == Full(1, 1, "sandboxes")
        assert isinstance(await store.claim(sandbox("sb-y", owner="bob"), limits), Claimed)

    @pytest.mark.parametrize(
        ("quota", "full"),
        [
            (Quota(sandboxes=2), Full(2, 2, "sandboxes")),
            (Quota(cpu_millicores=299), Full(200, 299, "cpu_millicores")),
            (Quota(memory_bytes=600 * MIB), Full(512 * MIB, 600 * MIB, "memory_bytes")),
            (Quota(starting=2), Full(2, 2, "starting")),
        ],
    )
    async def test_a_quota_bounds_each_resource(self, store: Store, quota: Quota, full: Full) -> None:
        limits = Limits(quota=quota)
        for number in range(2):
            assert isinstance(await store.admit(sandbox(f"sb-{number}"), limits), Admitted)
        assert await store.admit(sandbox("sb-2"), limits) == full
        assert isinstance(await store.admit(sandbox("sb-3", owner="bob"), limits), Admitted)

    async def test_the_quota_speaks_before_the_total(self, store: Store) -> None:
        limits = Limits(1, Quota(sandboxes=1))
        assert isinstance(await store.admit(sandbox("sb-1"), limits), Admitted)
        assert await store.admit(sandbox("sb-2"), limits) == Full(1, 1, "sandboxes")
        assert await store.admit(sandbox("sb-3", owner="bob"), limits) == Full(1, 1)

    async def test_what_a_sandbox_does_not_want_does_not_bound_it(self, store: Store) -> None:
        gpu = replace(sandbox("sb-1"), spec=SandboxSpec(image="a", gpu=2))
        limits = Limits(quota=Quota(gpu=2))
        assert isinstance(await store.admit(gpu, limits), Admitted)
        assert isinstance(await store.admit(sandbox("sb-2"), limits), Admitted)
        assert await store.admit(replace(gpu, id="sb-3"), limits) == Full(2, 2, "gpu")

    async def test_a_recount_finds_nothing_wrong_in_a_life(self, store: Store) -> None:
        await warm(store, "sb-1")
        await warm(store, "sb-2")
        wish = sandbox("sb-3", owner="bob")
        claimed = await store.claim(wish, Limits())
        assert isinstance(claimed, Claimed)
        await store.admit(sandbox("sb-4"), Limits())
        assert await store.recount() == []
        assert await store.replace(ended(claimed.sandbox), claimed.sandbox.version)
        assert await store.recount() == []
        assert await store.usage("bob") == Usage()

    async def test_usage_follows_a_life(self, store: Store) -> None:
        first = sandbox("sb-1")
        await store.admit(first, Limits())
        assert await store.usage("alice") == replace(ONE, starting=1)
        running = replace(first, state=State.RUNNING, version=1)
        await store.replace(running, 0)
        assert await store.usage("alice") == ONE
        ending = replace(running, state=State.ENDING, version=2, end=EndCause("deleted", "d", 1, "alice"))
        await store.replace(ending, 1)
        assert await store.usage("alice") == await store.usage(None) == Usage()
        await store.replace(replace(ending, state=State.ENDED, version=3), 2)
        assert await store.usage("alice") == Usage()

    async def test_what_is_restored_is_used_once(self, store: Store) -> None:
        found = replace(sandbox("sb-1"), state=State.RUNNING)
        for _ in range(2):
            await store.restore(found)
        await store.restore(ended(sandbox("sb-2")))
        assert await store.usage("alice") == await store.usage(None) == ONE

    async def test_a_restored_warm_one_can_be_claimed(self, store: Store) -> None:
        found = replace(sandbox("sb-1", owner=pool_owner("p")), pool="p", state=State.WARM, ready_at_ms=1)
        await store.restore(found)
        claim = await store.claim(sandbox("sb-w"), Limits())
        assert isinstance(claim, Claimed)
        assert claim.sandbox.id == "sb-1"

    async def test_who_has_lost_his_lease_admits_nothing(self, store: Store, advance: Advance) -> None:
        fence = Fence("pools", "a")
        with pytest.raises(FencedError):
            await store.admit(sandbox("sb-1"), Limits(), fence)
        await store.lease("pools", "a", 10_000)
        assert isinstance(await store.admit(sandbox("sb-1"), Limits(), fence), Admitted)
        with pytest.raises(FencedError):
            await store.admit(sandbox("sb-2"), Limits(), Fence("pools", "b"))
        await advance(11)
        with pytest.raises(FencedError):
            await store.admit(sandbox("sb-2"), Limits(), fence)
        assert await store.get("sb-2") is None

    async def test_found_by_its_new_owner_and_not_by_its_pool(self, store: Store) -> None:
        await warm(store, "sb-1")
        assert [one.id for one in await store.find(pool_owner("p"), {}, {State.WARM})] == ["sb-1"]
        await store.claim(replace(sandbox("sb-w"), spec=ENV), Limits())
        assert [one.id for one in await store.find("alice", {"l": "m"}, {State.RUNNING})] == ["sb-1"]
        assert list(await store.find(pool_owner("p"), {})) == []

    async def test_what_is_claimed_expires_when_its_owner_says(self, store: Store, now_ms: Now) -> None:
        await warm(store, "sb-1", expires_at_ms=1 << 50)
        at_ms = now_ms()
        await store.claim(replace(sandbox("sb-w"), expires_at_ms=at_ms + 5_000), Limits())
        assert list((await store.due(at_ms, 0)).expired) == []
        assert list((await store.due(at_ms + 5_000, 0)).expired) == ["sb-1"]
