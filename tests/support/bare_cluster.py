"""The test cluster's node without gVisor, for as long as a test runs, and somebody who keeps its services running."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from controlplane.cluster.kubernetes.nodes.proof import ANNOTATION, TAINT
from tests.cluster import processes, programs
from tests.cluster.layout import CONTAINERD_SOCKET, ETC, MOUNTED_LAZILY, NODE, STATE
from tests.cluster.toolchain import program
from tests.support.faults import node_part_of
from tests.support.installed import kubectl, objects
from tests.support.waiting import until

FOLDER = STATE / "installed"
CONFIG = ETC / "containerd.toml"
# Values of a release whose installer finds this node.
INSTALLER = (
    "nodeAgent.enabled=true",
    f"nodeAgent.containerd.socket={CONTAINERD_SOCKET}",
    f"nodeAgent.containerd.root={STATE / 'containerd'}",
    "nodeAgent.installer.enabled=true",
    "nodeAgent.installer.supervisor=process",
    f"nodeAgent.installer.config={CONFIG}",
    f"nodeAgent.installer.folder={FOLDER}",
    "nodeAgent.installer.everySeconds=5",
)
_SNAPSHOTS = ("snapshots", "--snapshotter", "lazy")
# What the installed programs leave behind, by names that the chart gives.
LEFT = (Path("/run/rollbox-snapshotter"), Path("/var/lib/rollbox-snapshotter"), Path("/run/rollbox"), FOLDER)


@contextlib.asynccontextmanager
async def bare_cluster() -> AsyncIterator[None]:
    """The node offers no gVisor while the block begins; afterwards it is the cluster's own again.

    Raises:
        TimeoutError: somebody's sandboxes run on it, and do not end.
    """
    # Those of tests before may still be on their way out.
    await until(_no_sandbox_runs, 120.0)
    # What a test has left that was killed.
    await asyncio.to_thread(_clear)
    await _forget_lazy()
    await node_part_of("bare")
    keeping = asyncio.create_task(_keep())
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        shutil.rmtree(CONFIG.parent / "conf.d", ignore_errors=True)
        await node_part_of("whole")
        await _forget_lazy()
        await kubectl("annotate", "node", NODE, f"{ANNOTATION}-")
        with contextlib.suppress(RuntimeError):
            # There is none, unless the test has failed.
            await kubectl("taint", "node", NODE, f"{TAINT}-")
        with contextlib.suppress(TimeoutError):
            # Of a test that has failed some may still be there, and run from these folders.
            await until(_no_sandbox_runs, 60.0)
            await asyncio.to_thread(_clear)


async def _forget_lazy() -> None:
    """Of what the snapshotter of this name has: the next one has another folder, and containerd knows no difference.

    What the one has that runs now is listed. Of others containerd has records alone, which it lists no more; an image
    whose layers have such records is taken for one that is here.
    """
    chains = await _chains()
    rows = [line.split() for line in await _ctr("images", "ls")]
    if names := [row[0] for row in rows if row[0].startswith(MOUNTED_LAZILY)]:
        await _ctr("images", "rm", "--sync", *names)
    for _ in range(8):
        listed = [line.split()[0] for line in (await _ctr(*_SNAPSHOTS, "ls"))[1:]]
        if not listed:
            break
        # Those that others are made from stay until these are gone.
        for name in listed:
            await _ctr(*_SNAPSHOTS, "rm", name)

    async def gone() -> bool:
        # The longest first, for the same reason; of a pod that is on its way out one is needed yet.
        names = sorted(chains, key=lambda one: chains[one], reverse=True)
        return all([await _removed(name) for name in names])

    await until(gone, 60.0)


async def _removed(snapshot: str) -> bool:
    process = await _started(*_SNAPSHOTS, "rm", snapshot)
    _, err = await process.communicate()
    return process.returncode == 0 or b"not found" in err


async def _chains() -> Mapping[str, int]:
    """The snapshots that containerd's images refer to, as their chains name them, with the layers of each."""
    configs = [line.split()[0] for line in await _ctr("content", "ls") if "containerd.io/gc.ref.snapshot.lazy=" in line]
    found: dict[str, int] = {}
    for config in configs:
        name = ""
        for layers, one in enumerate(
            json.loads("\n".join(await _ctr("content", "get", config)))["rootfs"]["diff_ids"], 1
        ):
            name = f"sha256:{hashlib.sha256(f'{name} {one}'.encode()).hexdigest()}" if name else one
            found[name] = layers
    return found


async def _ctr(*words: str) -> Sequence[str]:
    """The lines that it prints; none where it fails, as for what is not there."""
    out, _ = await (await _started(*words)).communicate()
    return out.decode().splitlines()


async def _started(*words: str) -> asyncio.subprocess.Process:
    ctr = (program("containerd", "ctr"), "-a", str(CONTAINERD_SOCKET), "-n", "k8s.io")
    return await asyncio.create_subprocess_exec(
        *ctr, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def _no_sandbox_runs() -> bool:
    return not [one for one in await objects("pods", "-A") if one["spec"].get("runtimeClassName")]


async def _keep() -> None:
    """Starts again what has ended: containerd, and the snapshotter once it is installed."""
    async with asyncio.TaskGroup() as group:
        for verb in ("mounts", "serve"):
            group.create_task(_snapshotter(verb))
        containerd = next(one for one in programs.base() if one.name == "containerd")
        while True:
            if processes.running("containerd") is None:
                await asyncio.to_thread(processes.start, containerd)
            await asyncio.sleep(0.2)


async def _snapshotter(verb: str) -> None:
    while True:
        with contextlib.suppress(FileNotFoundError):
            text = (FOLDER / "etc/snapshotter.env").read_text()
            told = dict(line.split("=", 1) for line in text.splitlines())
            process = await asyncio.create_subprocess_exec(FOLDER / "bin/rollbox-snapshotter", verb, env=told)
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        await asyncio.sleep(0.2)


def _clear() -> None:
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in sorted((one for one in points if one.startswith(tuple(f"{top}/" for top in LEFT))), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
    for folder in LEFT:
        shutil.rmtree(folder, ignore_errors=True)
