"""Timelines of sandboxes: in the client, with a failure, and on the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rollbox import Client, SandboxError, SandboxGroup
from rollbox.errors import OomKilled, SandboxLost, SandboxNotFound
from rollbox.timeline import Timeline
from tests.support.gateway_fake import FakeGateway, Fault

cli = CliRunner()


async def test_a_timeline_tells_what_has_happened(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python", labels={"run": "r"})
    await sandbox.delete()
    timeline = await client.timeline(sandbox.id)
    assert [moment.word for moment in timeline.moments] == ["request", "ready", "deleted"]
    assert timeline.end is not None
    assert (timeline.end.cause, timeline.end.fault, timeline.labels) == ("deleted", "caller", {"run": "r"})
    assert timeline.mask_sample
    assert Timeline.from_json(json.loads(json.dumps(timeline.to_json()))) == timeline
    with pytest.raises(SandboxNotFound):
        await client.timeline("sb-none")


async def test_a_failure_in_its_context(client: Client) -> None:
    sandbox = await client.create("python")
    context = await client.error_context(OomKilled("too much", sandbox_id=sandbox.id, request_id="req-9"))
    assert context.timeline is not None
    assert (context.code, context.is_infra, context.request_id) == ("oom_killed", False, "req-9")
    assert json.loads(json.dumps(context.to_json()))["timeline"]["summary"] == "It runs."
    gone = await client.error_context(OomKilled("too much", sandbox_id="sb-none"))
    assert (gone.timeline, gone.missing) == (None, "sandbox_not_found: there is no sandbox sb-none")
    nobodys = await client.error_context(SandboxError("no route"))
    assert (nobodys.timeline, nobodys.missing) == (None, "the error has no sandbox id")


async def test_a_create_that_failed_has_its_sandbox_in_its_context(client: Client, fake: FakeGateway) -> None:
    ended = await client.create("python")
    await ended.delete()
    fake.fail("create", Fault("sandbox_lost", details={"sandbox_id": ended.id, "by": "platform"}))
    with pytest.raises(SandboxLost) as failed:
        await client.create("python")
    context = await client.error_context(failed.value)
    assert (context.sandbox_id, context.missing) == (ended.id, "")
    assert context.timeline is not None
    assert [moment.word for moment in context.timeline.moments] == ["request", "ready", "deleted"]


async def test_a_sample_that_failed_has_its_sandbox_in_its_context(client: Client, fake: FakeGateway) -> None:
    ended = await client.create("python")
    fake.fail("sample", Fault("sandbox_lost", details={"sandbox_id": ended.id}), Fault())
    async with await SandboxGroup.create("python", n=2, partial=True, client=client) as group:
        context = await client.error_context(group.failed[0])
    assert (context.code, context.sandbox_id, context.missing) == ("sandbox_lost", ended.id, "")
