"""What the chart has for drains, as a real API server takes it: a policy, a budget, and a level of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rollbox import Client
from rollbox.errors import SandboxEvicted
from tests.support.helm import KUBE_VERSION
from tests.support.images import IMAGE
from tests.support.installed import CHART, Installed, kubeconfig, kubectl, machines, objects, program, run
from tests.support.waiting import until, waiting

_SCHEMA = re.compile(r"X-Kubernetes-Pf-Flowschema-Uid: \"?([0-9a-f-]{36})", re.IGNORECASE)


async def test_the_control_plane_may_change_the_cordon_and_its_mark_and_nothing_else(stack: Installed) -> None:
    name = (await machines())[0]["metadata"]["name"]

    async def patch(change: dict[str, object]) -> None:
        as_it = ("--as", _account(stack, "controlplane"), "--dry-run=server", "--type=merge")
        await kubectl("patch", "node", name, *as_it, "-p", json.dumps(change))

    changes: tuple[tuple[dict[str, object], str], ...] = (
        ({"metadata": {"labels": {"rollbox.test/x": "y"}}}, "must not change labels"),
        ({"metadata": {"annotations": {"rollbox.test/x": "y"}}}, "must not change annotations"),
        ({"spec": {"taints": [{"key": "rollbox.test/x", "effect": "PreferNoSchedule"}]}}, "must not change taints"),
    )
    for change, words in changes:
        with pytest.raises(RuntimeError, match=words):
            await patch(change)
    await patch({"metadata": {"annotations": {"rollbox.dev/drain": "{}"}}, "spec": {"unschedulable": True}})


@pytest.mark.timeout(240)
async def test_a_budget_refuses_evictions_and_no_delete(stack: Installed, client: Client) -> None:
    async with (
        _rendered(stack, "sandboxes/availability.yaml", "drain.evictions=refused"),
        await client.create(IMAGE, memory="128Mi") as sandbox,
    ):
        await until(lambda: _counted(stack))
        # Of a pod that the kubelet has not told to run yet, Kubernetes asks no budget.
        await until(lambda: _runs(stack, sandbox.id))
        with pytest.raises(RuntimeError, match="disruption budget"):
            await _evict(stack, sandbox.id)
        assert (await sandbox.exec("echo on")).stdout == "on\n"
        await sandbox.delete(wait=True)


@pytest.mark.timeout(240)
async def test_without_a_budget_an_eviction_ends_it_at_once_and_is_told(stack: Installed, client: Client) -> None:
    sandbox = await client.create(IMAGE, memory="128Mi")
    async with waiting(sandbox) as call:
        await _evict(stack, sandbox.id)
        with pytest.raises(SandboxEvicted):
            async with asyncio.timeout(60):
                await call


@pytest.mark.parametrize("part", ["controlplane", "operator", "dns"])
async def test_requests_of_our_accounts_match_our_flow_schema(stack: Installed, part: str) -> None:
    async with _rendered(stack, "controlplane/fairness.yaml", "apiFairness.enabled=true"):
        name = f"{stack.namespace}-{stack.release}"
        uid = (await kubectl("get", "flowschema", name, "-o", "jsonpath={.metadata.uid}")).strip()
        await until(lambda: _matches(_account(stack, part), uid))
        assert not await _matches(_account(stack, "nobody"), uid)


async def _runs(stack: Installed, sandbox_id: str) -> bool:
    (pod,) = await objects("pods", "-n", stack.sandboxes, f"--field-selector=metadata.name={sandbox_id}")
    return any((one["type"], one["status"]) == ("Ready", "True") for one in pod["status"].get("conditions", ()))


def _account(stack: Installed, part: str) -> str:
    return f"system:serviceaccount:{stack.namespace}:{stack.release}-{part}"


@asynccontextmanager
async def _rendered(stack: Installed, template: str, value: str) -> AsyncIterator[None]:
    """One template of the chart, as a release with this value has it, for the block."""
    where = ("--namespace", stack.namespace, "--kube-version", KUBE_VERSION, "--show-only", f"templates/{template}")
    text = await run("helm", "template", stack.release, str(CHART), *where, "--set", f"images.registry=r,{value}")
    await run("kubectl", "apply", "-f", "-", stdin=text.encode())
    try:
        yield
    finally:
        await run("kubectl", "delete", "--ignore-not-found", "-f", "-", stdin=text.encode())


async def _evict(stack: Installed, sandbox_id: str) -> None:
    about = {"name": sandbox_id, "namespace": stack.sandboxes}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
    path = f"/api/v1/namespaces/{stack.sandboxes}/pods/{sandbox_id}/eviction"
    await run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(eviction).encode())


async def _counted(stack: Installed) -> bool:
    """Whether the budget has counted a healthy sandbox: before that it refuses everything."""
    await asyncio.sleep(0.5)
    budget = ("pdb", f"{stack.release}-sandboxes", "-n", stack.sandboxes)
    healthy = await kubectl("get", *budget, "-o", "jsonpath={.status.currentHealthy}")
    return int(healthy or 0) > 0


async def _matches(account: str, uid: str) -> bool:
    """Whether a request of this account was classified by this FlowSchema, as its answer says."""
    await asyncio.sleep(0.3)
    process = await asyncio.create_subprocess_exec(
        program("kubectl"),
        "get",
        "--raw",
        "/api",
        "--as",
        account,
        "-v=8",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(kubeconfig())},
    )
    _, told = await process.communicate()
    found = _SCHEMA.search(told.decode())
    assert found is not None, told.decode()[-2000:]
    return found[1] == uid
