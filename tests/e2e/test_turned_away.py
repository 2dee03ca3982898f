"""A kubelet refuses a pod, since another scheduler has taken the room meanwhile: it is made anew."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rollbox import Client, SandboxRecord
from tests.support.faults import node_part
from tests.support.images import IMAGE
from tests.support.installed import Installed, apply, kubectl, machines, objects, own_cluster, run
from tests.support.waiting import until

WISHED_CPU = 0.3
LABELS = {"case": "turned-away"}
THIEF = "thief"


@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_a_pod_that_its_kubelet_refuses_is_made_anew(stack: Installed, client: Client) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's scheduler is not ours to stop")
    await node_part("stop", "kube-scheduler")
    try:
        creating = asyncio.create_task(
            client.create(IMAGE, cpu=(WISHED_CPU, 2), memory="128Mi", labels=LABELS, start_timeout=150)
        )
        pod = await until(lambda: _pod(stack, client), 60)
        assert pod is not None
        node = (await machines())[0]
        # What is free when the pod comes is not enough: another scheduler's pod has come first.
        await apply(_thief(node["metadata"]["name"], await _free(node) - WISHED_CPU / 2))
        await kubectl("wait", "pod", THIEF, "-n", "default", "--for=condition=Ready", "--timeout=60s")
        await _bind(pod, node["metadata"]["name"])
        await until(lambda: _another(stack, pod), 60)
        await kubectl("delete", "pod", THIEF, "-n", "default", "--grace-period=0", "--force")
    finally:
        await node_part("start", "kube-scheduler")
        await kubectl("delete", "pod", THIEF, "-n", "default", "--ignore-not-found", "--grace-period=0", "--force")
    async with await creating as sandbox:
        assert (await sandbox.exec("echo started")).stdout == "started\n"
        assert sandbox.id == pod["metadata"]["name"]
    logs = [(await kubectl("logs", one["metadata"]["name"], "-n", stack.namespace)) for one in await _planes(stack)]
    assert "a node has turned a sandbox away, another one is tried" in "".join(logs)
    assert "OutOfcpu" in "".join(logs)


async def _planes(stack: Installed) -> list[dict[str, Any]]:
    return await stack.component("controlplane")


async def _pod(stack: Installed, client: Client) -> dict[str, Any] | None:
    """The pod of the create, which no scheduler binds."""
    await asyncio.sleep(0.2)
    records: list[SandboxRecord] = await client.list(LABELS)
    named = {one.id for one in records}
    pods = await objects("pods", "-n", stack.sandboxes)
    return next((one for one in pods if one["metadata"]["name"] in named), None)


async def _another(stack: Installed, before: dict[str, Any]) -> bool:
    """Whether the sandbox has another pod of its name."""
    await asyncio.sleep(0.2)
    of_it = [one["metadata"] for one in await objects("pods", "-n", stack.sandboxes)]
    same = [one for one in of_it if one["name"] == before["metadata"]["name"]]
    return any(one["uid"] != before["metadata"]["uid"] for one in same)


async def _free(node: dict[str, Any]) -> float:
    """Cores of a node that its pods do not request."""
    pods = await objects("pods", "-A")
    there = [one for one in pods if one["spec"].get("nodeName") == node["metadata"]["name"]]
    alive = [one for one in there if one["status"].get("phase") not in ("Succeeded", "Failed")]
    return _cores(node["status"]["allocatable"]["cpu"]) - sum(map(_requested, alive))


def _requested(pod: dict[str, Any]) -> float:
    asked = [one.get("resources", {}).get("requests", {}).get("cpu", "0") for one in pod["spec"]["containers"]]
    overhead = pod["spec"].get("overhead", {}).get("cpu", "0")
    return sum(map(_cores, [*asked, overhead]))


def _cores(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def _thief(node: str, cores: float) -> dict[str, Any]:
    requests = {"cpu": f"{int(cores * 1000)}m", "memory": "8Mi"}
    sleeps = ["python3", "-c", "import signal; signal.pause()"]
    container = {"name": "pause", "image": IMAGE, "command": sleeps, "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": THIEF, "namespace": "default"},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


async def _bind(pod: dict[str, Any], node: str) -> None:
    """Puts a pod on a node, as a scheduler does."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
    await run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(binding).encode())
