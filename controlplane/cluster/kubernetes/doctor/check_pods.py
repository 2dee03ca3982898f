"""Runs pods for a check: creates them, waits for their end, and always deletes them."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.doctor import network_check
from controlplane.cluster.kubernetes.pods.deaths import death, unscheduled
from controlplane.errors import Problem
from controlplane.reach import attempts

NAMESPACE: Final = "rollbox-doctor-"
LOOK_EVERY_S: Final = 0.5
# Deadline for a pod's start and end; includes the time for pulling the image.
WITHIN_S: Final = 90.0
AT_ONCE: Final[Json] = {"gracePeriodSeconds": 0}


@asynccontextmanager
async def namespace_with_policies(client: KubernetesClient) -> AsyncIterator[str]:
    """A temporary namespace with the chart's policies; yields its name."""
    name = f"{NAMESPACE}{secrets.token_hex(4)}"
    try:
        await client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for policy in network_check.policies(name):
            await client.create(f"/apis/networking.k8s.io/v1/namespaces/{name}/networkpolicies", policy)
        yield name
    finally:
        await _gone(client, f"/api/v1/namespaces/{name}")


@asynccontextmanager
async def running(client: KubernetesClient, manifest: Json) -> AsyncIterator[str]:
    """Runs a pod while the block runs; yields its path at the API server."""
    pods = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"
    path = f"{pods}/{manifest['metadata']['name']}"
    try:
        await _created(client, pods, manifest)
        yield path
    finally:
        await _gone(client, path)


async def _created(client: KubernetesClient, pods: str, manifest: Json) -> None:
    """Creates a pod; retries while a new namespace refuses pods because its service account does not exist yet."""
    until_s = asyncio.get_running_loop().time() + WITHIN_S
    while True:
        try:
            await client.create(pods, manifest)
        except Refused as refused:
            waits = "serviceaccount" in refused.refusal.message and asyncio.get_running_loop().time() < until_s
            if not waits:
                raise
        else:
            return
        await asyncio.sleep(LOOK_EVERY_S)


async def _gone(client: KubernetesClient, path: str) -> None:
    try:
        await client.delete(path, AT_ONCE)
    except Refused as refused:
        if refused.refusal.status != HTTPStatus.NOT_FOUND:
            raise


async def reached(client: KubernetesClient, pod: str, what: str) -> Json:
    """Waits for a pod and returns its status: once it has the field ``what``, or once its containers have ended.

    Args:
        client: the client of the API server.
        pod: the pod's path.
        what: the field to wait for; ``phase``: only for the end of its containers.

    Raises:
        Problem: start_timeout, with the cluster's reason; another code if the pod will never start.
    """
    until_s = asyncio.get_running_loop().time() + WITHIN_S
    while True:
        seen = await client.get(pod)
        status: Json = seen.get("status") or {}
        if _has_ended(status) or (what != "phase" and status.get(what)):
            return status
        if (dead := death(seen)) is not None:
            raise Problem(dead.cause, f"the pod {pod}: {dead.detail}")
        if asyncio.get_running_loop().time() > until_s:
            why = unscheduled(seen) or f"phase {status.get('phase')}"
            raise Problem("start_timeout", f"the pod {pod} did not come that far in {WITHIN_S:.0f} s: {why}")
        await asyncio.sleep(LOOK_EVERY_S)


def _has_ended(status: Json) -> bool:
    # Containers are checked too, since the phase changes later: the kubelet tears the rest of the pod down first.
    containers: Sequence[Json] = status.get("containerStatuses") or ()
    ended = bool(containers) and all("terminated" in one["state"] for one in containers)
    return ended or status.get("phase") in {"Succeeded", "Failed"}


def report_of(status: Json) -> dict[str, attempts.Seen]:
    """The results of the network check in a pod's termination message.

    Raises:
        Problem: internal, if there are none.
    """
    ends: Sequence[Json] = [one["state"].get("terminated") or {} for one in status.get("containerStatuses") or ()]
    said = " ".join(str(one.get("message") or one.get("reason") or "") for one in ends)
    try:
        return attempts.read_report(json.loads(said)["seen"])
    except (ValueError, KeyError, TypeError):
        raise Problem("internal", f"the pod that tries it failed: {said or status.get('message')}") from None
