"""Lazy sandboxes: no request before the first call, one create for any number of concurrent calls."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from rollbox import Client, Files, LazySandbox, Sandbox, SandboxGroup, sync
from rollbox.errors import Deleted, Internal, InvalidArgument, StartTimeout
from tests.support.gateway_fake import FakeGateway, Fault
from tests.unit.sdk.conftest import Clock


async def test_a_sample_that_never_calls_a_tool_starts_nothing(client: Client, fake: FakeGateway) -> None:
    async with LazySandbox("python", client=client, labels={"run": "r"}) as sandbox:
        assert (sandbox.started, sandbox.id, sandbox.labels) == (False, None, {"run": "r"})
    assert fake.requests == []


async def test_two_thousand_idle_ones_are_objects_and_nothing_else(client: Client, fake: FakeGateway) -> None:
    before = asyncio.all_tasks()
    sandboxes = [LazySandbox("python", client=client) for _ in range(2000)]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert not any(sandbox.started for sandbox in sandboxes)
    assert fake.requests == []


async def test_calls_side_by_side_create_one(client: Client, fake: FakeGateway) -> None:
    async with LazySandbox("python", client=client) as sandbox:
        results = await asyncio.gather(*(sandbox.exec("cat", stdin=str(n)) for n in range(20)))
    assert [result.stdout for result in results] == [str(n) for n in range(20)]
    assert len(fake.sandboxes) == 1


async def test_nonsense_is_told_before_anything_is_sent(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="memory"):
        LazySandbox("python", client=client, memory="2 apples")


async def test_a_caller_that_is_cancelled_leaves_the_create_to_the_next(client: Client, fake: FakeGateway) -> None:
    fake.hold_creates = True
    async with LazySandbox("python", client=client, idempotency_key="k") as sandbox:
        first = asyncio.ensure_future(sandbox.exec("true"))
        await fake.holding.wait()
        second = asyncio.ensure_future(sandbox.exec("true"))
        fake.hold_creates = False
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second).ok
    assert fake.refused_keys == {"k"}
    # The cancelled create withdrew only itself: the key belongs to the next one.
    assert list(fake.keys) == ["k"]


async def test_a_create_that_failed_is_tried_again_by_the_next_call(client: Client, fake: FakeGateway) -> None:
    fake.fail("create", Fault("internal"))
    async with LazySandbox("python", client=client, idempotency_key="k") as sandbox:
        with pytest.raises(Internal):
            await sandbox.exec("true")
        assert (await sandbox.exec("true")).ok


async def test_callers_that_wait_for_one_create_share_its_failure(client: Client, fake: FakeGateway) -> None:
    fake.fail("create", *[Fault("internal")] * 2)
    async with LazySandbox("python", client=client) as sandbox:
        failures = await asyncio.gather(*(sandbox.exec("true") for _ in range(5)), return_exceptions=True)
        assert {type(failure) for failure in failures} == {Internal}
        assert fake.count("POST") == 1
        # A later call creates again.
        with pytest.raises(Internal):
            await sandbox.exec("true")
        assert (await sandbox.exec("true")).ok


async def test_who_takes_a_cancelled_create_on_has_what_is_left_of_his_own_time(
    client: Client, fake: FakeGateway, clock: Clock
) -> None:
    fake.hold_creates = True
    async with LazySandbox("python", client=client, start_timeout=60) as sandbox:
        first = asyncio.ensure_future(sandbox.exec("true"))
        await fake.holding.wait()
        second = asyncio.ensure_future(sandbox.exec("true"))
        await asyncio.sleep(0)
        late = asyncio.ensure_future(sandbox.exec("true"))
        await asyncio.sleep(0)
        fake.hold_creates = False
        await clock.sleep(45)
        first.cancel()
        assert (await second).ok
        assert (await late).ok
    told = [int(headers["Start-Timeout-Ms"]) for _, _, headers in fake.requests if "Start-Timeout-Ms" in headers]
    assert told == [60_000, 15_000]


async def test_one_whose_time_has_passed_begins_nothing(client: Client, fake: FakeGateway, clock: Clock) -> None:
    fake.hold_creates = True
    async with LazySandbox("python", client=client, start_timeout=60) as sandbox:
        first = asyncio.ensure_future(sandbox.exec("true"))
        await fake.holding.wait()
        second = asyncio.ensure_future(sandbox.exec("true"))
        await asyncio.sleep(0)
        await clock.sleep(60)
        first.cancel()
        with pytest.raises(StartTimeout):
            await second
        assert fake.count("POST") == 1


async def test_a_deleted_one_starts_no_more(client: Client, fake: FakeGateway) -> None:
    sandbox = LazySandbox("python", client=client)
    await sandbox.delete()
    await sandbox.delete()
    with pytest.raises(Deleted):
        await sandbox.exec("true")
    assert fake.requests == []


async def test_a_detached_one_stays(client: Client, fake: FakeGateway) -> None:
    async with LazySandbox("python", client=client) as sandbox:
        assert await sandbox.detach() is None
        await sandbox.exec("true")
    assert fake.sandboxes["sb-1"]["state"] == "running"
    assert fake.sandboxes["sb-1"]["lease"] is None
    async with LazySandbox("python", client=client) as sandbox:
        await sandbox.exec("true")
        assert await sandbox.detach() == "sb-2"
    assert fake.sandboxes["sb-2"]["state"] == "running"


async def test_the_shared_client_is_used_and_given_back(fake: FakeGateway) -> None:
    async with LazySandbox("python") as sandbox:
        shell_free = await sandbox.exec("true")
    assert shell_free.ok
    assert [box["state"] for box in fake.sandboxes.values()] == ["ended"]


def test_the_sync_face(apart: FakeGateway) -> None:
    with sync.LazySandbox("python", labels={"run": "r"}) as sandbox:
        assert not sandbox.started
        assert sandbox.exec("cat", stdin="a").stdout == "a"
        assert sandbox.sandbox().id == sandbox.id
    assert {box["state"] for box in apart.sandboxes.values()} == {"ended"}


async def test_it_has_what_a_sandbox_has() -> None:
    missing = {name for name in vars(Sandbox) if not name.startswith("_")} - set(vars(LazySandbox))
    assert missing == {"create", "connect", "list"}
    for name, method in vars(Sandbox).items():
        if name not in missing and inspect.isfunction(method) and not name.startswith("_"):
            theirs, ours = (inspect.signature(one).parameters for one in (method, vars(LazySandbox)[name]))
            assert "options" in ours or [*ours] == [*theirs], name


async def test_files_start_it_with_their_first_call(client: Client, fake: FakeGateway, tmp_path: Path) -> None:
    fake.files.root = tmp_path
    lazy = LazySandbox("python", client=client)
    files, ports = lazy.files, lazy.ports
    assert (lazy.started, lazy.record, lazy.draining_at, await lazy.egress_log()) == (False, None, None, [])
    assert isinstance(files, Files)
    changes = files.watch("/")
    with pytest.raises(InvalidArgument, match="port"):
        await ports.expose(0)
    await files.write("/f", b"data")
    assert (lazy.id, await files.read("/f"), await lazy.processes.list()) == ("sb-1", b"data", [])
    assert b"".join([part async for part in lazy.files.open_read("/f")]) == b"data"
    assert (await anext(changes)).change == "watching"
    await changes.aclose()
    assert len(fake.sandboxes) == 1
    await lazy.delete()
    late = LazySandbox("python", client=client)
    await late.delete()
    with pytest.raises(Deleted):
        await late.files.read("/f")


async def test_a_checkpoint_is_named_as_for_a_sandbox(client: Client, fake: FakeGateway) -> None:
    async with LazySandbox(checkpoint="cp-1", client=client) as lazy:
        await lazy.exec("true")
    async with SandboxGroup.lazy(checkpoint="cp-2", n=2, client=client) as group:
        await group[1].exec("true")
    async with await SandboxGroup.create(checkpoint="cp-3", n=1, client=client):
        pass
    assert [body.get("sandbox", body)["image"] for body in fake.bodies if "sandbox" in body or "image" in body] == [
        "cp-1",
        "cp-2",
        "cp-3",
    ]
    for wrong in ({}, {"image": "python", "checkpoint": "cp-1"}):
        with pytest.raises(InvalidArgument, match="image or from a checkpoint"):
            LazySandbox(client=client, **wrong)  # type: ignore[arg-type]
