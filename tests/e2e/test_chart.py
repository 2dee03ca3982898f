"""What the chart leaves to the cluster: whom the API server lets in, and what scales the gateway."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.images import IMAGE
from tests.support.installed import Installed, objects, run
from tests.support.waiting import until

Pod = dict[str, Any]
GOOD: Pod = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "by-hand"},
    "spec": {
        "containers": [{"name": "a", "image": IMAGE, "command": ["sleep", "1"]}],
        "runtimeClassName": "gvisor",
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
    },
}
TOKEN = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
BAD: dict[str, Callable[[Pod], object]] = {
    "must have the runtimeClassName gvisor": lambda spec: spec.pop("runtimeClassName"),
    "host's network": lambda spec: spec.update(hostNetwork=True),
    "host's network, process": lambda spec: spec.update(hostPID=True),
    "or IPC namespace": lambda spec: spec.update(hostIPC=True),
    "hostPath": lambda spec: spec.update(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "volumes of networks": lambda spec: spec.update(
        volumes=[{"name": "v", "nfs": {"server": "192.0.2.1", "path": "/", "readOnly": True}}]
    ),
    "but by claims": lambda spec: spec.update(volumes=[{"name": "v", "csi": {"driver": "any.example.com"}}]),
    "must not be privileged": lambda spec: spec["containers"][0].update(securityContext={"privileged": True}),
    "container in the sandboxes": lambda spec: spec.update(
        initContainers=[{**spec["containers"][0], "name": "i", "securityContext": {"privileged": True}}]
    ),
    "automountServiceAccountToken false": lambda spec: spec.pop("automountServiceAccountToken"),
    "project no token": lambda spec: spec.update(volumes=[{"name": "v", **TOKEN}]),
    "restartPolicy Never": lambda spec: spec.update(restartPolicy="Always"),
}


async def _apply(stack: Installed, pod: Pod, *more: str) -> str:
    where = ("-n", stack.sandboxes, *more, "-f", "-")
    return await run("kubectl", "apply", *where, stdin=json.dumps(pod).encode())


@pytest.mark.core
# The level's first test: the installation, for which Helm has five minutes, is part of it.
@pytest.mark.timeout(400)
async def test_only_sandboxed_pods_are_let_into_the_sandboxes_namespace(stack: Installed) -> None:
    assert "created" in await _apply(stack, GOOD, "--dry-run=server")
    for words, spoil in BAD.items():
        pod = copy.deepcopy(GOOD)
        spoil(pod["spec"])
        with pytest.raises(RuntimeError, match="ValidatingAdmissionPolicy") as refused:
            await _apply(stack, pod)
        assert words in str(refused.value)
    policies = await objects("validatingadmissionpolicies", "-l", f"app.kubernetes.io/instance={stack.release}")
    assert policies
    assert not [one for one in policies if one["status"].get("typeChecking", {}).get("expressionWarnings")]


async def test_the_gateway_has_an_autoscaler_that_the_cluster_takes(stack: Installed) -> None:
    (scaler,) = await objects("horizontalpodautoscalers", "-n", stack.namespace)
    assert scaler["metadata"]["name"] == f"{stack.release}-gateway"
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 10)
    # With metrics or without, it brings the minimum up; Kubernetes looks every 15 s.
    await until(lambda: _replicas(stack, 2))


async def _replicas(stack: Installed, count: int) -> bool:
    await asyncio.sleep(0.5)
    return len(await stack.pods("gateway")) == count
