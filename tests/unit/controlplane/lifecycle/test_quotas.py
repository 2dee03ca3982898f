"""Declared quotas: what is in force, for whom, whoever has written it and however."""

import asyncio

import pytest
from pydantic import ValidationError

from controlplane.cluster.engine.documents import FileDocuments
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.lifecycle.admission.quotas import EVERYBODY, DeclaredQuota, Quotas
from controlplane.model import Limits, Quota, SandboxSpec
from tests.support.world import OWNER, SPEC, world

PATIENT = SPEC.model_copy(update={"start_timeout_ms": 600_000})


async def test_an_owner_has_his_own_quota_or_everybodys() -> None:
    quotas = Quotas(FileDocuments(), total=9)
    await quotas.declare(DeclaredQuota(owner="alice", sandboxes=4, gpu=1))
    await quotas.declare(DeclaredQuota(owner=EVERYBODY, starting=2))
    assert quotas.limits("alice") == Limits(9, Quota(sandboxes=4, gpu=1))
    assert quotas.limits("bob") == Limits(9, Quota(starting=2))
    assert quotas.limits("pool:warm") == Limits(9)
    assert await quotas.take_back("alice")
    assert not await quotas.take_back("alice")
    assert quotas.limits("alice") == Limits(9, Quota(starting=2))


async def test_a_quota_without_limits_takes_its_owner_out_of_everybodys() -> None:
    quotas = Quotas(FileDocuments(), total=0)
    await quotas.declare(DeclaredQuota(owner=EVERYBODY, sandboxes=1))
    await quotas.declare(DeclaredQuota(owner="alice"))
    assert quotas.limits("alice") == Limits()


@pytest.mark.parametrize("owner", ["alice", "everybody", "Über Maus", "a" * 128, "-x", EVERYBODY])
async def test_every_owners_quota_is_found_again(owner: str) -> None:
    documents = FileDocuments()
    await Quotas(documents, 0).declare(DeclaredQuota(owner=owner, sandboxes=3))
    again = Quotas(documents, 0)
    await again.open()
    assert again.limits(owner).quota.sandboxes == 3
    assert await again.take_back(owner)
    assert await documents.list("quotas") == []


async def test_two_for_one_owner_both_hold_and_changing_it_changes_both() -> None:
    documents = FileDocuments()
    await documents.put("quotas", "one", {"owner": "alice", "sandboxes": 4, "gpu": 2})
    await documents.put("quotas", "two", {"owner": "alice", "sandboxes": 6, "starting": 1})
    quotas = Quotas(documents, 0)
    await quotas.open()
    assert quotas.limits("alice").quota == Quota(sandboxes=4, gpu=2, starting=1)
    await quotas.declare(DeclaredQuota(owner="alice", sandboxes=9))
    assert quotas.limits("alice").quota == Quota(sandboxes=9)
    assert [one.name for one in await documents.list("quotas")] == ["one", "two"]


async def test_one_that_cannot_be_read_is_not_in_force_and_says_so() -> None:
    documents = FileDocuments()
    await documents.put("quotas", "odd", {"owner": "alice", "sandboxes": 0, "cores": 2})
    await documents.put("quotas", "good", {"owner": "bob", "sandboxes": 1})
    quotas = Quotas(documents, 0)
    await quotas.open()
    assert list(quotas.declared) == ["bob"]
    odd = await documents.get("quotas", "odd")
    assert odd is not None
    assert "sandboxes: Input should be greater than or equal to 1" in odd.status["invalid"]


@pytest.mark.parametrize("egress", [True, False])
async def test_a_limit_that_nothing_enforces_is_told_and_the_others_hold(*, egress: bool) -> None:
    documents = FileDocuments()
    await documents.put("quotas", "alice", {"owner": "alice", "sandboxes": 3, "egress_daily_bytes": 5})
    quotas = Quotas(documents, 0, egress=egress)
    await quotas.open()
    assert quotas.limits("alice").quota == Quota(sandboxes=3)
    told = await documents.get("quotas", "alice")
    assert told is not None
    assert ("egress_daily_bytes: egress is not installed" in told.status.get("unenforced", "")) is not egress


@pytest.mark.parametrize("limits", [{"sandboxes": 0}, {"gpu": -1}, {"cpu_millicores": 1 << 60}, {"cores": 1}])
def test_nonsense_is_no_quota(limits: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        DeclaredQuota(owner="alice", **limits)


async def test_what_another_replica_declares_lets_a_waiting_create_in() -> None:
    documents = FileDocuments()
    await documents.put("quotas", OWNER, {"owner": OWNER, "sandboxes": 1})
    async with world(documents=documents) as plane:
        await plane.create(OWNER, PATIENT)
        waits = asyncio.create_task(plane.create(OWNER, PATIENT))
        await asyncio.sleep(5)
        assert (await plane.service.quota_use(OWNER)).waiting == 1
        await documents.put("quotas", OWNER, {"owner": OWNER, "sandboxes": 2})
        await waits


async def test_creates_wait_for_a_delete_and_live_their_whole_ttl_from_then_on() -> None:
    async with world() as plane:
        await plane.service.quotas.declare(DeclaredQuota(owner=OWNER, sandboxes=1))
        first = (await plane.create(OWNER, PATIENT)).sandbox
        waits = asyncio.create_task(plane.create(OWNER, PATIENT))
        await asyncio.sleep(100)
        assert not waits.done()
        deleted_ms = plane.deps.clock.now_ms()
        await plane.service.delete(OWNER, first.id)
        second = (await waits).sandbox
        assert second.ready_at_ms is not None
        assert second.ready_at_ms - deleted_ms < 500
        assert second.expires_at_ms - deleted_ms >= PATIENT.ttl_ms


async def test_starts_of_one_owner_are_bounded_by_his_quota() -> None:
    async with world(options=Options(starts_in_flight=64)) as plane:
        await plane.service.quotas.declare(DeclaredQuota(owner=OWNER, starting=3))
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(plane.create(OWNER, PATIENT))
        assert plane.cluster.most_at_once == 3


async def test_a_full_installation_is_waited_for_too() -> None:
    async with world(options=Options(max_sandboxes=1)) as plane:
        first = (await plane.create("bob", SPEC)).sandbox
        waits = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(10)
        await plane.service.delete("bob", first.id)
        assert (await waits).sandbox.owner == OWNER


async def test_a_deleted_key_is_not_created_when_its_turn_comes() -> None:
    async with world() as plane:
        await plane.service.quotas.declare(DeclaredQuota(owner=OWNER, sandboxes=1))
        first = (await plane.create(OWNER, SPEC)).sandbox
        waits = asyncio.create_task(plane.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        await plane.service.delete_key(OWNER, "k")
        await plane.service.delete(OWNER, first.id)
        with pytest.raises(Problem, match="deleted: key k was deleted before its create arrived"):
            await waits
        assert (await plane.service.quota_use(OWNER)).used.sandboxes == 0


async def test_a_thousand_of_one_owner_while_another_makes_five() -> None:
    async with world(options=Options(starts_in_flight=16, max_sandboxes=100)) as plane:
        spec = SandboxSpec(image="a", start_timeout_ms=3_600_000, ttl_ms=5_000)
        herd = [asyncio.create_task(plane.create("alice", spec)) for _ in range(1_000)]
        await asyncio.sleep(0.5)
        began_ms = plane.deps.clock.now_ms()
        few = await asyncio.gather(*(plane.create("bob", spec) for _ in range(5)))
        ready_ms = max(one.sandbox.ready_at_ms or 0 for one in few)
        # The first hundred end after five seconds each; bob is among the very next.
        assert ready_ms - began_ms < 6_000
        everyone = await asyncio.gather(*herd)
        assert len({one.sandbox.id for one in everyone}) == 1_000
        await asyncio.sleep(6)
        assert (await plane.service.quota_use("alice")).used.sandboxes == 0


async def test_what_owners_use_is_written_beside_their_quotas_and_only_when_it_changes() -> None:
    documents = FileDocuments()
    async with world(documents=documents) as plane:
        await plane.service.quotas.declare(DeclaredQuota(owner=OWNER, sandboxes=2))
        await plane.service.quotas.declare(DeclaredQuota(owner=EVERYBODY, sandboxes=2))
        await plane.create(OWNER, SPEC)
        await asyncio.sleep(30)
        told = await documents.get("quotas", OWNER)
        assert told is not None
        assert told.status["used"]["sandboxes"] == 1
        await documents.status("quotas", OWNER, {})
        await asyncio.sleep(30)
        told = await documents.get("quotas", OWNER)
        assert told is not None
        assert told.status == {}


async def test_a_quota_that_is_put_right_says_nothing_of_what_was_wrong() -> None:
    documents = FileDocuments()
    await documents.put("quotas", OWNER, {"owner": OWNER, "sandboxes": -1})
    async with world(documents=documents):
        await documents.put("quotas", OWNER, {"owner": OWNER, "sandboxes": 1})
        await asyncio.sleep(30)
        told = await documents.get("quotas", OWNER)
        assert told is not None
        assert "invalid" not in told.status
