"""A node that only the API server knows: pods are bound to it and nobody starts them; a scenario plays the kubelet.

The API server, the scheduler, the control plane and the store are real; only kubelet and sidecar are played. Ends are
confirmed here, for every pod of the node; beginnings are the scenarios' own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from kubernetes_asyncio import client as kubernetes_client
from kubernetes_asyncio import config as kubernetes_config

from tests.support.installed import kubeconfig, kubectl, run

NAME = "rollbox-bench"
SELECTOR = {"rollbox.dev/bench": "node"}
# Keeps everybody else away, and drops what the node controller put there while nothing beat.
TAINT = {"key": "rollbox.dev/bench", "value": "node", "effect": "NoSchedule"}
TOLERATION = {"key": "rollbox.dev/bench", "operator": "Exists"}
HEARTBEAT_S = 10.0
CONFIRMED_AT_ONCE = 8
WATCH_AGAIN_S = 0.5
# The pod is gone already, or it is another one of that name.
GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


class WatchError(Exception):
    """The API server has ended a watch, and said why."""


@dataclass(frozen=True)
class Ending:
    """A pod that was asked to end, and waits for its kubelet to say that it has."""

    namespace: str
    name: str
    uid: str


def ending(line: bytes) -> Ending | None:
    """The pod of a line of a watch, when it is one that ends.

    Raises:
        WatchError: the line is the API server's error.
    """
    # Nearly all lines are of pods that live, in the middle of what is measured: they are not worth being parsed.
    if b'"deletionTimestamp"' not in line and b'"ERROR"' not in line:
        return None
    event = json.loads(line)
    if event["type"] == "ERROR":
        raise WatchError(f"the watch on the pods of {NAME} broke: {event['object'].get('message')}")
    about = event["object"]["metadata"]
    if event["type"] == "DELETED" or not about.get("deletionTimestamp"):
        return None
    return Ending(about["namespace"], about["name"], about["uid"])


@asynccontextmanager
async def fake_node() -> AsyncIterator[None]:
    """The node, ready and with room for five thousand pods, while the block runs."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NAME, "labels": SELECTOR},
        "spec": {"taints": [TAINT]},
    }
    await run("kubectl", "apply", "-f", "-", stdin=json.dumps(node).encode())
    try:
        await kubernetes_config.load_kube_config(str(kubeconfig()))
        # One connection: a kubectl for every beat is a tenth of a second's work in the middle of what is measured.
        async with kubernetes_client.ApiClient() as api, _serving(kubernetes_client.CoreV1Api(api)):
            yield
    finally:
        await kubectl("delete", "node", NAME, "--ignore-not-found")


@asynccontextmanager
async def _serving(core: kubernetes_client.CoreV1Api) -> AsyncIterator[None]:
    await _beat(core)
    async with asyncio.TaskGroup() as group:
        serving = [group.create_task(_keep_beating(core)), group.create_task(_confirm_ends(core))]
        try:
            yield
        finally:
            for task in serving:
                task.cancel()


async def _keep_beating(core: kubernetes_client.CoreV1Api) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        await _beat(core)


async def _beat(core: kubernetes_client.CoreV1Api) -> None:
    room = {"cpu": "1000", "memory": "4000Gi", "pods": "5000", "ephemeral-storage": "4000Gi"}
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Played",
        "message": "",
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }
    status: dict[str, Any] = {"capacity": room, "allocatable": room, "conditions": [ready]}
    await core.patch_node_status(NAME, {"status": status})
    await core.patch_node(NAME, {"spec": {"taints": [TAINT]}})


async def _confirm_ends(core: kubernetes_client.CoreV1Api) -> None:
    turns = asyncio.Semaphore(CONFIRMED_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        while True:
            # A busy API server's cache lags, and says so; a stream begins with every pod there is, so none is missed.
            with suppress(WatchError):
                async for pod in _endings(core):
                    await turns.acquire()
                    group.create_task(_confirm(core, pod, turns))
            await asyncio.sleep(WATCH_AGAIN_S)


async def _endings(core: kubernetes_client.CoreV1Api) -> AsyncIterator[Ending]:
    stream: Any = await core.list_pod_for_all_namespaces(
        field_selector=f"spec.nodeName={NAME}", watch=True, _preload_content=False
    )
    async with stream:
        stream.raise_for_status()
        async for line in stream.content:
            if (pod := ending(line)) is not None:
                yield pod


async def _confirm(core: kubernetes_client.CoreV1Api, pod: Ending, turns: asyncio.Semaphore) -> None:
    options: Any = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
    try:
        # The answer is the whole pod: not worth being made into objects.
        answer: Any = await core.delete_namespaced_pod(pod.name, pod.namespace, body=options, _preload_content=False)
        async with answer:
            if answer.status not in GONE:
                answer.raise_for_status()
    finally:
        turns.release()
