"""The scenario `surface` in a gVisor pod: baselines inside the pod, and `kubectl cp`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bench import surface
from tests.bench.record import Record
from tests.support.images import ON_CLUSTER
from tests.support.installed import Installed, kubeconfig, kubectl, own_cluster, program
from tests.support.stack import Product
from tests.support.waiting import until

TRIES = 3
# Beside the sidecar in the pod: its memory (KiB), and the most of it until the input ends.
LOOKS = """
import pathlib, select, sys
def resident():
    lines = dict(line.split(":", 1) for line in sidecar.read_text().splitlines() if ":" in line)
    return int(lines["VmRSS"].split()[0])
found = [path for path in pathlib.Path("/proc").glob("[0-9]*/status") if "rollbox-sidecar" in path.read_text()]
sidecar = min(found, key=lambda path: int(path.parent.name))
most = resident()
print(most, flush=True)
while not select.select([sys.stdin], [], [], 0.02)[0]:
    most = max(most, resident())
print(most)
"""


class Cluster:
    """The product on a cluster; memory is looked at where its node is this machine, and in the pod."""

    image = ON_CLUSTER
    copying = "kubectl cp"

    def __init__(self, installed: Installed) -> None:
        self.product: Product = installed
        self._installed = installed

    async def copy_in(self, local: Path, sandbox_id: str, path: str) -> None:
        """See ``Ground.copy_in``."""
        await self._copied(str(local), f"{sandbox_id}:{path}")

    async def copy_out(self, sandbox_id: str, path: str, local: Path) -> None:
        """See ``Ground.copy_out``."""
        await self._copied(f"{sandbox_id}:{path}", str(local))

    async def _copied(self, source: str, destination: str) -> None:
        """Copies as a person would: again, when it breaks off with "unexpected EOF". The best time has no such try."""
        for _ in range(TRIES - 1):
            with contextlib.suppress(RuntimeError):
                await kubectl("cp", *self._container, source, destination)
                return
        await kubectl("cp", *self._container, source, destination)

    async def address(self, sandbox_id: str) -> str | None:
        """See ``Ground.address``: a node reaches the pods on it, whatever the policies say."""
        if not own_cluster():
            return None
        # The sandbox says that it is ready before its node says where it is.
        get = ("get", "pod", sandbox_id, "-n", self._installed.sandboxes, "--output", "jsonpath={.status.podIP}")
        return await until(lambda: kubectl(*get))

    async def watched(self, sandbox_id: str) -> dict[str, int]:
        """See ``Ground.watched``."""
        uids = [pod["metadata"]["uid"] for pod in await self._installed.component("gateway")]
        gateways = {f"gateway {n}": pid for n, pid in enumerate(_processes("rollbox-gateway", uids), 1)}
        return {**gateways, "client": os.getpid()}

    @contextlib.asynccontextmanager
    async def inside(self, sandbox_id: str) -> AsyncIterator[dict[str, tuple[float, float]]]:
        """See ``Ground.inside``: the sidecar, as gVisor's kernel counts it."""
        found: dict[str, tuple[float, float]] = {}
        looking = await asyncio.create_subprocess_exec(
            program("kubectl"),
            "exec",
            "-i",
            sandbox_id,
            *self._container,
            "--",
            "python3",
            "-c",
            LOOKS,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "KUBECONFIG": str(kubeconfig())},
        )
        assert looking.stdout is not None
        first = await looking.stdout.readline()
        try:
            yield found
        finally:
            # An empty input, not none: only then is its end told.
            out, _ = await looking.communicate(b"")
        found["sidecar"] = (int(first) / 1024, int(out) / 1024)

    @property
    def _container(self) -> tuple[str, ...]:
        return ("-n", self._installed.sandboxes, "-c", "target")


def _processes(name: str, pod_uids: list[str]) -> list[int]:
    """Processes of this name in the control groups of these pods, as far as they run on this machine."""
    found = []
    for entry in Path("/proc").iterdir():
        # A process may end between the listing and the look.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == name[:15]:
                group = (entry / "cgroup").read_text().replace("_", "-")
                found += [int(entry.name)] if any(uid in group for uid in pod_uids) else []
    return sorted(found)


async def measure(product: Installed) -> list[Record]:
    """The records of this scenario. Cost: some minutes, most of them for `kubectl cp`."""
    return await surface.measure_on(Cluster(product))
