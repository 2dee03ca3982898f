"""Pushes: late, repeated, forged, early."""

import asyncio

import pytest

from controlplane.errors import Problem
from controlplane.lifecycle import Push, SigningKey
from controlplane.model import State
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OWNER, SPEC, World, world


async def test_a_repeated_push_is_acknowledged_and_changes_nothing(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    await plane.cluster.push_now(sandbox.id)
    assert await plane.service.get(OWNER, sandbox.id) == sandbox


async def test_a_late_push_hears_why_the_sandbox_ended(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    token = plane.cluster.held[sandbox.id].boot.ready_token
    await plane.service.delete(OWNER, sandbox.id)
    with pytest.raises(Problem, match="deleted"):
        await plane.service.accept_push(token, Push(sandbox.id))


async def test_a_push_for_another_sandbox_is_refused(plane: World) -> None:
    one = (await plane.create(OWNER, SPEC)).sandbox
    two = (await plane.create(OWNER, SPEC)).sandbox
    with pytest.raises(Problem, match="permission_denied: the credential speaks for"):
        await plane.cluster.push_now(one.id, token=plane.cluster.held[two.id].boot.ready_token)


async def test_a_forged_push_does_not_make_a_start_ready() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        create = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(1)
        (sandbox_id,) = plane.cluster.started
        with pytest.raises(Problem, match="unauthenticated"):
            await plane.cluster.push_now(sandbox_id, token="forged")
        assert (await plane.service.get(OWNER, sandbox_id)).state is State.STARTING
        await plane.cluster.push_now(sandbox_id)
        await create


async def test_where_a_start_was_begun_the_credential_that_it_was_given_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        create = asyncio.create_task(plane.create(OWNER, SPEC))
        other = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(1)
        one, two = plane.cluster.started
        with pytest.raises(Problem, match="permission_denied: the credential speaks for"):
            await plane.cluster.push_now(one, token=plane.cluster.held[two].boot.ready_token)
        monkeypatch.delattr(SigningKey, "verify_readiness")
        for sandbox_id in (one, two):
            await plane.cluster.push_now(sandbox_id)
        await asyncio.gather(create, other)


async def test_a_push_for_an_unknown_sandbox_is_refused(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    token = plane.cluster.held[sandbox.id].boot.ready_token
    await plane.service.delete(OWNER, sandbox.id)
    await asyncio.sleep(25 * 3600)
    with pytest.raises(Problem, match="unauthenticated: .* has expired"):
        await plane.service.accept_push(token, Push(sandbox.id))


async def test_a_push_that_overtakes_the_clusters_answer_counts() -> None:
    async with world(FakeCluster(ready_s=None, start_s=1)) as plane:
        create = asyncio.create_task(plane.create(OWNER, SPEC, "k"))
        await asyncio.sleep(0.5)
        sandbox = await plane.deps.store.by_key(OWNER, "k")
        assert sandbox is not None
        await plane.service.accept_push(plane.deps.key.readiness(sandbox).text, Push(sandbox.id, kernel="early"))
        assert (await create).sandbox.kernel == "early"
