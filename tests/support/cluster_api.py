"""The API of Cluster API in a real API server: the definitions of a published release, and a played controller.

The controller does what a management cluster does with one MachineDeployment, as far as the scaler sees it: it makes
machines and removes marked ones first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from controlplane.cluster.kubernetes.node_pools.cluster_api import DELETE_FIRST, DEPLOYMENT_LABEL
from tests.support.installed import apply, kubectl, run

Json = dict[str, Any]
MODULE = "sigs.k8s.io/cluster-api@v1.13.6"
VERSION = "cluster.x-k8s.io/v1beta2"
KINDS = ("machinedeployments", "machines")
REFERENCE = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "PlayedMachineTemplate", "name": "played"}


def definitions() -> list[bytes]:
    """What the release defines, from its Go module."""
    folder = of_module(MODULE) / "config/crd/bases"
    return [(folder / f"cluster.x-k8s.io_{kind}.yaml").read_bytes() for kind in KINDS]


def of_module(module: str) -> Path:
    """The folder of a Go module at a version, which is downloaded where it is not there yet."""
    command = ["go", "mod", "download", "-json", module]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    return Path(json.loads(told.stdout)["Dir"])


@contextlib.asynccontextmanager
async def defined() -> AsyncIterator[None]:
    """The definitions in the cluster for the block."""
    names = [f"crd/{kind}.cluster.x-k8s.io" for kind in KINDS]
    try:
        for text in definitions():
            await run("kubectl", "apply", "--server-side", "-f", "-", stdin=text)
        await kubectl("wait", *names, "--for=condition=Established", "--timeout=60s")
        yield
    finally:
        await kubectl("delete", *names, "--ignore-not-found", "--timeout=60s")


def machine_deployment(name: str) -> Json:
    """One with no machine yet."""
    labels = {"pool": name}
    spec = {
        "clusterName": "played",
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _machine_spec()},
    }
    return {"apiVersion": VERSION, "kind": "MachineDeployment", "metadata": {"name": name}, "spec": spec}


def _machine_spec() -> Json:
    return {"clusterName": "played", "bootstrap": {"dataSecretName": "played"}, "infrastructureRef": REFERENCE}


class Controller:
    """Plays the controller of a MachineDeployment.

    Attributes:
        removed: machines that it has deleted, and whether they were marked.
    """

    def __init__(self, namespace: str, name: str) -> None:
        self._namespace = namespace
        self._name = name
        self._made = 0
        self.removed: dict[str, bool] = {}

    async def replicas(self) -> int:
        """How many are asked for."""
        path = f"/apis/{VERSION}/namespaces/{self._namespace}/machinedeployments/{self._name}"
        return int(json.loads(await kubectl("get", "--raw", path))["spec"]["replicas"])

    async def machines(self) -> list[Json]:
        """Those that there are."""
        path = f"/apis/{VERSION}/namespaces/{self._namespace}/machines"
        found: list[Json] = json.loads(await kubectl("get", "--raw", path))["items"]
        return found

    async def turn(self) -> None:
        """Makes the machines that are missing, or deletes those that are too many, marked ones first."""
        wanted, there = await self.replicas(), await self.machines()
        for _ in range(wanted - len(there)):
            self._made += 1
            about = {"name": f"{self._name}-{self._made}", "labels": {DEPLOYMENT_LABEL: self._name}}
            thing = {"apiVersion": VERSION, "kind": "Machine", "metadata": about, "spec": _machine_spec()}
            await apply(thing, namespace=self._namespace)
        there.sort(key=lambda one: not _marked(one))
        for one in there[: max(0, len(there) - wanted)]:
            name = one["metadata"]["name"]
            self.removed[name] = _marked(one)
            await kubectl("delete", "machines.cluster.x-k8s.io", name, "-n", self._namespace)

    async def joined(self, machine: str, node: str) -> None:
        """Says that the node of a machine is there."""
        change = json.dumps({"status": {"nodeRef": {"name": node}}})
        where = ("machines.cluster.x-k8s.io", machine, "-n", self._namespace)
        await kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", change)


def _marked(machine: Json) -> bool:
    return DELETE_FIRST in (machine["metadata"].get("annotations") or {})


@contextlib.asynccontextmanager
async def following(controller: Controller) -> AsyncIterator[None]:
    """Has it look once a second while the block runs."""

    async def loop() -> None:
        while True:
            await controller.turn()
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(loop())
        try:
            yield
        finally:
            task.cancel()
