"""Groups: created as a whole or in part with errors by sample, found again by name, deleted together."""

from __future__ import annotations

import asyncio

import pytest

from rollbox import Client, SandboxGroup, aclose, shared, sync
from rollbox.errors import (
    CapacityUnavailable,
    Internal,
    InvalidArgument,
    StartTimeout,
    UpstreamTimeout,
)
from tests.support.gateway_fake import FakeGateway, Fault


def states(fake: FakeGateway) -> set[str]:
    return {box["state"] for box in fake.sandboxes.values()}


async def test_one_request_makes_all_and_one_deletes_them(client: Client, fake: FakeGateway) -> None:
    async with await SandboxGroup.create("python", n=16, client=client, labels={"run": "r"}, ttl=60) as group:
        assert (len(group), group.failed) == (16, {})
        assert [sandbox.labels["rollbox.sample"] for sandbox in group] == [str(n) for n in range(16)]
        assert {sandbox.labels["rollbox.group"] for sandbox in group} == {group.name}
        assert {sandbox.labels["run"] for sandbox in group} == {"r"}
        assert (await group[3].exec("cat", stdin="a")).stdout == "a"
    assert states(fake) == {"ended"}
    assert (fake.count("PUT"), fake.count("DELETE")) == (1, 1)


async def test_one_failure_of_all_is_raised_and_nothing_is_left(client: Client, fake: FakeGateway) -> None:
    fake.fail("sample", Fault(), Fault("start_timeout"))
    with pytest.raises(StartTimeout, match="sample 1"):
        await SandboxGroup.create("python", n=4, client=client)
    assert states(fake) == {"ended"}


async def test_a_part_says_of_each_why_it_is_not_there(client: Client, fake: FakeGateway) -> None:
    fake.fail("sample", Fault(), Fault("start_timeout"), Fault(), Fault("capacity_unavailable"))
    async with await SandboxGroup.create("python", n=4, partial=True, client=client) as group:
        assert [sample for sample, _ in group.items()] == [0, 2]
        assert {sample: type(error) for sample, error in group.failed.items()} == {
            1: StartTimeout,
            3: CapacityUnavailable,
        }
        with pytest.raises(StartTimeout):
            _ = group[1]
        with pytest.raises(InvalidArgument, match="no sample 9"):
            _ = group[9]


async def test_no_part_at_all_is_a_failure(client: Client, fake: FakeGateway) -> None:
    fake.fail("sample", Fault("start_timeout"), Fault("start_timeout"))
    with pytest.raises(StartTimeout):
        await SandboxGroup.create("python", n=2, partial=True, client=client)


@pytest.mark.parametrize(
    "fault", [Fault(), Fault(after=True), Fault("draining"), Fault("upstream_timeout", after=True)]
)
async def test_a_call_that_broke_is_sent_again_and_makes_each_once(
    client: Client, fake: FakeGateway, fault: Fault
) -> None:
    fake.fail("group", fault, fault)
    group = await SandboxGroup.create("python", n=3, client=client)
    assert sorted(sandbox.id for sandbox in group) == sorted(fake.sandboxes)
    assert len(fake.sandboxes) == 3


async def test_a_cancelled_call_deletes_what_it_may_have_made(client: Client, fake: FakeGateway) -> None:
    fake.hold_creates = True
    creating = asyncio.ensure_future(SandboxGroup.create("python", n=3, name="g", client=client))
    await fake.holding.wait()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert fake.refused_keys == {"g/0", "g/1", "g/2"}


async def test_a_call_that_gives_up_deletes_what_it_may_have_made(client: Client, fake: FakeGateway) -> None:
    fake.fail("group", *[Fault("upstream_timeout", after=True)] * 11)
    with pytest.raises(UpstreamTimeout):
        await SandboxGroup.create("python", n=2, start_timeout=1, client=client)
    assert states(fake) == {"ended"}


async def test_what_was_attached_can_be_detached_again(client: Client, fake: FakeGateway) -> None:
    await (await SandboxGroup.create("python", n=2, name="g", client=client)).detach()
    async with await SandboxGroup.connect("g", attach=True, client=client) as group:
        assert all(sandbox.record.lease for sandbox in group)
        await group.detach()
    assert [box["lease"] for box in fake.sandboxes.values()] == [None, None]
    assert states(fake) == {"running"}


async def test_one_that_cannot_be_attached_keeps_neither_the_others_nor_the_shared_client(fake: FakeGateway) -> None:
    await (await SandboxGroup.create("python", n=3, name="g", lease=None)).detach()
    await aclose()
    fake.fail("lease", Fault("internal"))
    with pytest.raises(Internal):
        await SandboxGroup.connect("g", attach=True)
    assert sum(box["lease"] is not None for box in fake.sandboxes.values()) == 2
    assert asyncio.get_running_loop() not in shared._by_loop


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "ä", "a" * 101])
async def test_a_name_that_is_none_is_refused_at_once(client: Client, fake: FakeGateway, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name of a group"):
        await SandboxGroup.create("python", n=1, name=name, client=client)
    with pytest.raises(InvalidArgument, match="name of a group"):
        SandboxGroup.lazy("python", n=1, name=name, client=client)
    assert fake.requests == []


@pytest.mark.parametrize("n", [0, -1, 1025, True, 1.5])
async def test_a_number_that_is_none_is_refused_at_once(client: Client, fake: FakeGateway, n: int) -> None:
    with pytest.raises(InvalidArgument, match="n "):
        await SandboxGroup.create("python", n=n, client=client)
    assert fake.requests == []


async def test_the_first_failure_is_kept_when_the_delete_fails_too(client: Client, fake: FakeGateway) -> None:
    group = await SandboxGroup.create("python", n=2, client=client)
    fake.fail("group", Fault("internal"))
    with pytest.raises(ZeroDivisionError) as caught:
        async with group:
            raise ZeroDivisionError
    assert "could not be deleted" in caught.value.__notes__[0]


async def test_a_delete_that_fails_alone_is_raised(client: Client, fake: FakeGateway) -> None:
    group = await SandboxGroup.create("python", n=2, client=client)
    fake.fail("group", Fault("internal"))
    with pytest.raises(Internal):
        async with group:
            pass
    assert (await group.delete()).deleted == ["sb-1", "sb-2"]
    assert (await group.delete()).deleted == []


async def test_the_shared_client_is_used_and_given_back(fake: FakeGateway) -> None:
    async with await SandboxGroup.create("python", n=2) as group:
        assert (await group[0].exec("true")).ok
    async with SandboxGroup.lazy("python", n=2) as lazy:
        assert (await lazy[0].exec("true")).ok
    assert states(fake) == {"ended"}


def test_the_sync_face(apart: FakeGateway) -> None:
    with sync.SandboxGroup.create("python", n=2, name="g") as group:
        assert [sandbox.exec("cat", stdin="a").stdout for sandbox in group] == ["a", "a"]
        assert len(sync.SandboxGroup.connect("g")) == 2
        assert all(sandbox.record.lease for sandbox in sync.SandboxGroup.connect("g", attach=True))
        assert (group.name, group.failed, group[1].id) == ("g", {}, "sb-2")
    with sync.SandboxGroup.lazy("python", n=2) as lazy:
        assert lazy[0].exec("cat", stdin="b").stdout == "b"
        assert [sandbox.started for _, sandbox in lazy.items()] == [True, False]
    assert {box["state"] for box in apart.sandboxes.values()} == {"ended"}
