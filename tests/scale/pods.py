"""Tells the played sidecars which pods run: from one watch, as kubelets hear of theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.watch import Reflector
from controlplane.cluster.kubernetes.marks import LABEL_SANDBOX, SIDECAR, SIDECAR_PORT

UP_WITHIN_S = 60.0


@dataclass(frozen=True)
class Pod:
    """A pod that runs: its address and node, and what its sidecar was given."""

    address: str
    node: str
    settings: dict[str, str]


@dataclass
class Sidecars:
    """The program that plays all sidecars, and the pods that it knows.

    Attributes:
        running: sandboxes by name; those of lost nodes are not here.
        pods_running: names of all pods that run, sandboxes or not, as the API server tells it.
        lost: names of lost nodes.
    """

    process: asyncio.subprocess.Process
    running: dict[str, Pod] = field(default_factory=dict)
    pods_running: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)

    @classmethod
    async def start(cls, program: Path, log: Path) -> Sidecars:
        """Start the program; RuntimeError when it does not listen."""
        pipe = asyncio.subprocess.PIPE
        with log.open("ab") as words:
            process = await asyncio.create_subprocess_exec(
                program, str(SIDECAR_PORT), stdin=pipe, stdout=pipe, stderr=words
            )
        assert process.stdout is not None
        async with asyncio.timeout(UP_WITHIN_S):
            if await process.stdout.readline() != b"listening\n":
                raise RuntimeError(f"the played sidecars do not listen; see {log}")
        return cls(process)

    async def follow(self, client: KubernetesClient, namespace: str) -> None:
        """Hear of the pods until cancelled."""
        await Reflector(client, f"/api/v1/namespaces/{namespace}/pods", {}, self).run()

    def replace(self, objects: Sequence[Json]) -> None:
        """See `Mirror.replace`."""
        self.pods_running.clear()
        for pod in objects:
            self.put(pod)
        there = {pod["metadata"]["name"] for pod in objects}
        for name in [name for name in self.running if name not in there]:
            self._end(name)

    def put(self, thing: Json) -> None:
        """See `Mirror.put`."""
        about, status, node = thing["metadata"], thing.get("status", {}), thing["spec"].get("nodeName", "")
        name, runs = about["name"], status.get("phase") == "Running" and not about.get("deletionTimestamp")
        (self.pods_running.add if runs else self.pods_running.discard)(name)
        if LABEL_SANDBOX not in about.get("labels", {}):
            return
        if node in self.lost:
            return
        if not runs:
            self._end(name)
        elif name not in self.running and status.get("podIP"):
            self._begin(name, Pod(status["podIP"], node, _settings(thing)))

    def remove(self, thing: Json) -> None:
        """See `Mirror.remove`."""
        self.pods_running.discard(thing["metadata"]["name"])
        self._end(thing["metadata"]["name"])

    def lose(self, node: str) -> list[str]:
        """A node stands still, with all that runs there: nothing of it answers any more; the names of what ran."""
        self.lost.add(node)
        names = [name for name, pod in self.running.items() if pod.node == node]
        for name in names:
            self._order(silence=name, address=self.running[name].address)
        return names

    async def tell(self) -> dict[str, int]:
        """How many pods the program plays, how many pushes were acknowledged, how many commands have run."""
        assert self.process.stdout is not None
        self._order(tell=True)
        return dict(json.loads(await self.process.stdout.readline()))

    def _begin(self, name: str, pod: Pod) -> None:
        self.running[name] = pod
        self._order(
            begin=name,
            address=pod.address,
            ready=urlsplit(pod.settings["READY_URL"]).netloc,
            token=pod.settings["READY_TOKEN"],
            key=pod.settings["TOKEN_PUBLIC_KEY"],
        )

    def _end(self, name: str) -> None:
        if (gone := self.running.pop(name, None)) is not None:
            self._order(end=name, address=gone.address)

    def _order(self, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")


def _settings(pod: dict[str, Any]) -> dict[str, str]:
    (sidecar,) = [one for one in pod["spec"]["containers"] if one["name"] == SIDECAR]
    prefix = "ROLLBOX_SIDECAR_"
    return {one["name"].removeprefix(prefix): one.get("value", "") for one in sidecar["env"]}
