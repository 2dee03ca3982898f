"""An API server with a kubelet, played: every pod is scheduled, starts and gets ready; pods are as large as real ones.

    python -m tests.bench.ab.api_server FOLDER

Writes FOLDER/kubeconfig, prints a line, and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import uvloop

from tests.support.fake_kubernetes import PODS, FakeKubernetes, fake_kubernetes

# As large as what an API server notes of those who have written a pod.
MANAGED = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {f"f:{number:03}": {} for number in range(200)}}]


class WithKubelet(FakeKubernetes):
    """Changes the status of every new pod as scheduler and kubelet do."""

    async def _tell(self, kind: str, collection: str, thing: dict[str, Any]) -> None:
        if collection == PODS and kind == "ADDED":
            thing["metadata"]["managedFields"] = MANAGED
            asyncio.get_running_loop().create_task(self._start(thing["metadata"]["name"]))
        await super()._tell(kind, collection, thing)

    async def _start(self, name: str) -> None:
        conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Initialized", "status": "True"}]
        waiting = {"waiting": {"reason": "ContainerCreating"}}
        running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        for conditions_seen, state in ((1, waiting), (2, waiting), (2, running)):
            await asyncio.sleep(0.02)
            pod = self.objects[PODS].get(name)
            if pod is None or "deletionTimestamp" in pod["metadata"]:
                return
            pod["spec"]["nodeName"] = "n1"
            containers = [{"name": one, "image": "i", "state": state} for one in ("sidecar", "target")]
            await self.patch_status(
                name,
                phase="Running" if state is running else "Pending",
                podIP="10.0.0.1",
                conditions=conditions[:conditions_seen],
                containerStatuses=containers,
            )


async def main(folder: Path) -> None:
    async with fake_kubernetes(folder, made=WithKubelet):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
