"""What the kubelet hears of a sandbox's use is true, and costs the node no process: it asks every ten seconds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client
from tests.support.images import IMAGE
from tests.support.installed import kubectl, machines, objects, own_cluster
from tests.support.waiting import until

MIB = 2**20
HOLDS_MIB = 100
WORKS_S = 3
# Holds so much, says so, and works until it is ended: what it sees of its own time is no time on a processor.
WORK = f"""
held = bytearray({HOLDS_MIB} << 20)
open('/tmp/held', 'w').close()
while True: pass
"""
ASKS = 10
NOTHING: dict[str, Any] = {"containers": [], "cpu": {"usageCoreNanoSeconds": 0}}


async def test_the_kubelet_hears_what_a_sandbox_uses_and_no_process_is_started_for_it(client: Client) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's shims are not ours")
    async with await client.create(IMAGE, memory="256Mi") as sandbox:
        working = asyncio.create_task(sandbox.exec(["python3", "-c", WORK], timeout=600))
        await until(lambda: sandbox.files.exists("/tmp/held"))
        told = await until(lambda: _worked(sandbox.id))
        # The kubelet reads the pod's own figure by itself.
        whole = told["memory"]["workingSetBytes"]
        assert whole > HOLDS_MIB * MIB
        assert 0.7 * whole < sum(one["memory"]["workingSetBytes"] for one in told["containers"]) < 1.4 * whole
        (pod,) = [pod for pod in await objects("pods", "-A") if pod["metadata"]["name"] == sandbox.id]
        shim = _shim(pod["metadata"]["uid"])
        before = _of_children_ticks(shim)
        for _ in range(ASKS):
            assert (await _told(sandbox.id))["containers"]
        assert _of_children_ticks(shim) == before
        working.cancel()
        await asyncio.wait([working])


async def _worked(sandbox_id: str) -> dict[str, Any]:
    """What is told of it once all of it has the work in it; nothing before."""
    told = await _told(sandbox_id)
    taken = sum(one["cpu"]["usageCoreNanoSeconds"] for one in told["containers"])
    return told if min(taken, told["cpu"]["usageCoreNanoSeconds"]) >= WORKS_S * 1e9 else {}


async def _told(sandbox_id: str) -> dict[str, Any]:
    node = (await machines())[0]["metadata"]["name"]
    summary = json.loads(await kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary"))
    return next((pod for pod in summary["pods"] if pod["podRef"]["name"] == sandbox_id), NOTHING)


def _shim(pod_uid: str) -> Path:
    """The folder of the shim's process: the parent of a gVisor kernel is the shim that has started it."""
    for folder in Path("/proc").glob("[0-9]*"):
        # Others end between the listing and the look.
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if command.startswith(b"runsc-sandbox") and pod_uid.encode() in command:
                parent = re.search(r"^PPid:\s+(\d+)$", (folder / "status").read_text(), re.MULTILINE)
                assert parent
                return Path("/proc") / parent[1]
    raise AssertionError(f"no gVisor kernel of pod {pod_uid}")


def _of_children_ticks(process: Path) -> int:
    """What ended children of a process have taken of a processor: it rises with each that it starts."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return int(fields[13]) + int(fields[14])
