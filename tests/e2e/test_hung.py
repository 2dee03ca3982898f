"""A sandbox whose kernel hangs: calls fail typed, it ends by itself, no delete waits for it, its node is told of."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import SandboxError, SandboxLost, UpstreamTimeout
from tests.support.command_line import rollbox
from tests.support.faults import signal_kernel
from tests.support.images import IMAGE
from tests.support.installed import Installed, objects, own_cluster
from tests.support.replicas import of_each
from tests.support.waiting import until

# Three rounds of questions, each with the time that two unanswered ones take.
LOST_WITHIN_S = 240.0
# A round of questions, with one that is not answered, here and through a gateway.
MARKED_WITHIN_S = 120.0
# The node has two minutes to stop one, and the operator looks every half.
TOLD_WITHIN_S = 300.0


# Most of it is waiting: for the rule of lost sandboxes, and beside it for that of nodes that do not stop one.
@pytest.mark.timeout(900)
async def test_a_hung_sandbox_ends_by_itself_or_at_once_and_its_node_keeps_its_room(
    stack: Installed, client: Client, shared: Sandbox
) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's processes are not ours to stop")
    hung, deleted = await asyncio.gather(*(client.create(IMAGE, memory="128Mi") for _ in range(2)))
    async with _stopped(hung.id, deleted.id):
        # Its owner need not wait for anything, and can.
        async with asyncio.timeout(10):
            await deleted.delete()
        assert (await client.get(deleted.id)).state == "ending"
        with pytest.raises(UpstreamTimeout, match="has ended and its quota is free"):
            await deleted.delete(wait=True, wait_timeout=5)
        with pytest.raises(SandboxError) as failed:
            async with asyncio.timeout(60):
                await hung.exec("true")
        assert failed.value.is_infra
        await until(lambda: _ended(client, hung.id), LOST_WITHIN_S)
        record = await client.get(hung.id)
        assert record.end is not None
        assert record.end.cause == "sandbox_lost"
        assert "has answered neither the control plane nor a gateway" in record.end.detail
        with pytest.raises(SandboxLost):
            await hung.exec("true")
        assert (await shared.exec("echo on")).stdout == "on\n"
        await until(lambda: _told(deleted.id), TOLD_WITHIN_S)
        pods = await _pods(stack)
        for one in (hung, deleted):
            assert "deletionTimestamp" in pods[one.id]["metadata"], "its room is to be counted for as long as it runs"
        async with await client.create(IMAGE, memory="128Mi") as fresh:
            assert (await fresh.exec("echo still taken in")).ok
    assert (await client.delete(hung.id, deleted.id, wait=True, wait_timeout=120)).failed == {}
    assert not {hung.id, deleted.id} & (await _pods(stack)).keys()


async def test_one_that_hangs_for_a_while_is_marked_by_every_control_plane_until_it_answers(
    stack: Installed, client: Client, shared: Sandbox
) -> None:
    """One of them probes, and Redis has what it found: lists of all tell it, and no sandbox ends for it."""
    if not own_cluster():
        pytest.skip("a given cluster's processes are not ours to stop")
    async with await client.create(IMAGE, memory="128Mi") as hung:
        # There are two of them.
        assert await of_each(stack, partial(_marks, hung.id)) == [False, False]
        async with _stopped(hung.id):
            await until(lambda: _all_say(stack, hung.id, marked=True), MARKED_WITHIN_S)
            _, out, err = await rollbox(stack, "ps")
            (line,) = [one for one in out.decode().splitlines() if hung.id in one]
            assert "running (no answer for " in line, err
            # Whoever asks for the story of one is told by a probe of this moment.
            _, out, err = await rollbox(stack, "why", hung.id)
            assert "does not answer" in out.decode(), err
            assert await of_each(stack, partial(_marks, shared.id)) == [False, False]
        await until(lambda: _all_say(stack, hung.id, marked=False), MARKED_WITHIN_S)
        assert (await hung.exec("echo on")).stdout == "on\n"
        assert (await client.get(hung.id)).state == "running"


async def _all_say(stack: Installed, sandbox_id: str, *, marked: bool) -> bool:
    await asyncio.sleep(0.5)
    return {*await of_each(stack, partial(_marks, sandbox_id))} == {marked}


async def _marks(sandbox_id: str, replica: Client) -> bool:
    """Whether a control plane says in its list and in the record that a sandbox answers no probe."""
    record = await replica.get(sandbox_id)
    (listed,) = [one for one in await replica.list() if one.id == sandbox_id]
    assert record.state == listed.state == "running"
    return None not in {listed.silent_since_ms, record.silent_since_ms}


@contextlib.asynccontextmanager
async def _stopped(*ids: str) -> AsyncIterator[None]:
    """The kernels of these sandboxes do nothing while the block runs."""
    try:
        for one in ids:
            await signal_kernel(one, signal.SIGSTOP)
        yield
    finally:
        for one in ids:
            await signal_kernel(one, signal.SIGCONT)


async def _ended(client: Client, sandbox_id: str) -> bool:
    await asyncio.sleep(0.5)
    return (await client.get(sandbox_id)).end is not None


async def _pods(stack: Installed) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["name"]: pod for pod in await objects("pods", "-n", stack.sandboxes)}


async def _told(name: str) -> bool:
    """Whether the node's events name it."""
    await asyncio.sleep(0.5)
    chosen = ("--field-selector", "reason=SandboxNotStopped,involvedObject.kind=Node")
    return any(name in event["message"] for event in await objects("events", "-n", "default", *chosen))
