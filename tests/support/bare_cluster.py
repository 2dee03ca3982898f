"""The test cluster's node without gVisor, for as long as a test runs, and somebody who keeps its services running."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from controlplane.cluster.kubernetes.proof import ANNOTATION, TAINT
from tests.cluster import processes, programs
from tests.cluster.layout import CONTAINERD_SOCKET, ETC, NODE, STATE
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
    "nodeAgent.installer.keeper=process",
    f"nodeAgent.installer.config={CONFIG}",
    f"nodeAgent.installer.folder={FOLDER}",
    "nodeAgent.installer.everySeconds=5",
)
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
        if not (FOLDER / "state/record.json").exists():
            # Else sandboxes may still run from what is there.
            await asyncio.to_thread(_clear)


async def _forget_lazy() -> None:
    """Of what the snapshotter of this name has: the next one has another folder, and containerd knows no difference."""
    for _ in range(8):
        names = [line.split()[0] for line in (await _snapshots("ls")).splitlines()[1:]]
        if not names:
            return
        # Those that others are made from stay until these are gone.
        for name in names:
            await _snapshots("rm", name)


async def _snapshots(*words: str) -> str:
    ctr = (
        program("containerd", "ctr"),
        "-a",
        str(CONTAINERD_SOCKET),
        "-n",
        "k8s.io",
        "snapshots",
        "--snapshotter",
        "lazy",
    )
    process = await asyncio.create_subprocess_exec(
        *ctr, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await process.communicate()
    return out.decode()


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
