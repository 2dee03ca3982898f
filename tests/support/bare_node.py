"""A containerd of a test's own, which has nothing of rollbox, on this machine: its root, its sockets, no Kubernetes.

Whoever keeps a node's services running is played here: what ends is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster.toolchain import SYSTEM_PATH, program
from tests.support.installed import ROOT
from tests.support.waiting import until

SETTINGS = """\
# Somebody's own: this line and the ones below have to survive.
version = {version}
root = "{root}"
state = "{run}/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
  address = "{run}/containerd.sock"
"""


def payload(folder: Path) -> Path:
    """What the installer brings to nodes. Cost: seconds, minutes where nothing is built."""
    subprocess.run([str(ROOT / "setup/payload.sh"), str(folder)], check=True, stderr=subprocess.DEVNULL)
    return folder


@dataclass
class Done:
    """An installer that has ended: exit status, what it printed, and its log."""

    status: int
    out: str
    log: str


@dataclass
class BareNode:
    """The node.

    Attributes:
        folder: of its files.
        run: of its sockets; short, as their paths have to be.
        payload: the programs that are installed.
        told: further settings of the installer.
        refuses: containerd does not start while this file is there.
        pids: of services, as they were started last.
    """

    folder: Path
    run: Path
    payload: Path
    told: dict[str, str] = field(default_factory=dict)
    refuses: Path | None = None
    pids: dict[str, int] = field(default_factory=dict)
    keeping: asyncio.Task[None] | None = None

    @property
    def config(self) -> Path:
        return self.folder / "etc/config.toml"

    @property
    def opt(self) -> Path:
        return self.folder / "opt"

    def environment(self) -> Mapping[str, str]:
        """The installer's."""
        told = {
            "CONTAINERD": f"{self.run}/containerd.sock",
            "CONFIG": str(self.config),
            "KEEPER": "process",
            "PAYLOAD": str(self.payload),
            "FOLDER": str(self.opt),
            "RUN": f"{self.run}/runsc",
            "SNAPSHOTTER_RUN": f"{self.run}/snapshotter",
            "SNAPSHOTTER_ROOT": str(self.folder / "snapshots"),
            "REGISTRIES": str(self.folder / "etc/certs.d"),
            **self.told,
        }
        return {f"ROLLBOX_INSTALL_{name}": value for name, value in told.items()}

    async def begin(self, *words: str) -> asyncio.subprocess.Process:
        """Starts the installer."""
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        command = str(self.payload / "rollbox-node")
        return await asyncio.create_subprocess_exec(command, *words, env=self.environment(), **pipes)  # type: ignore[arg-type]

    async def run_installer(self, *words: str) -> Done:
        """Runs it to its end."""
        process = await self.begin(*words)
        out, log = await process.communicate()
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), log.decode())

    async def plan(self) -> list[str]:
        """What an install would do: verbs and names of files."""
        done = await self.run_installer("install", "--dry-run", "--json")
        assert done.status == 0, done.log
        steps: list[dict[str, Any]] = json.loads(done.out)["steps"]
        return [f"{step['do']} {Path(step['target']).name}" for step in steps]

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """Every file of settings and programs, with its mode and content, and every folder."""
        found = {}
        for top in (self.config.parent, self.opt):
            for path in sorted(top.rglob("*")):
                content = path.read_bytes() if path.is_file() else b""
                # What the installer tells of a run that has failed stays, for people.
                if path.name not in {"status.json", "state"}:
                    found[str(path.relative_to(self.folder))] = (path.stat().st_mode, content)
        return found

    async def in_gvisor(self, *command: str) -> str:
        """The output of a command in a container of the installed gVisor, past the installer's own check."""
        root = self.folder / "rootfs"
        (root / "bin").mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/busybox", root / "bin/busybox")
        out, _ = await self._ctr_run("default", ("--rootfs", str(root)), command)
        return out

    async def runs(self, image: str, snapshotter: str, *command: str) -> tuple[str, str]:
        """Output and errors of a command in gVisor, in a container of an image that was pulled for pods."""
        return await self._ctr_run("k8s.io", ("--snapshotter", snapshotter, image), command)

    async def _ctr_run(self, namespace: str, what: tuple[str, ...], command: tuple[str, ...]) -> tuple[str, str]:
        shim = ("--runtime", str(self.opt / "bin/containerd-shim-runsc-v1"))
        options = ("--runtime-config-path", str(self.opt / "etc/runsc.toml"))
        sandbox = ("--annotation", "io.kubernetes.cri.container-type=sandbox", "--fifo-dir", f"{self.run}/fifo")
        ctr = (program("containerd", "ctr"), "-a", f"{self.run}/containerd.sock", "-n", namespace)
        told = await asyncio.create_subprocess_exec(
            *ctr, "run", "--rm", *shim, *options, *sandbox, *what, f"t{os.urandom(4).hex()}", *command,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(told.communicate(), 90)
        # Of a sandbox that ends by itself the shim may come too late to know its status.
        return out.decode(), err.decode()

    def _services(self) -> dict[str, tuple[tuple[str, ...], dict[str, str]]]:
        """What is kept running, as far as it is there."""
        found: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
            "containerd": ((program("containerd"), "--config", str(self.config)), {})
        }
        if self.refuses and self.refuses.exists():
            del found["containerd"]
        with contextlib.suppress(FileNotFoundError):
            text = (self.opt / "etc/snapshotter.env").read_text()
            told = dict(line.split("=", 1) for line in text.splitlines())
            found |= {verb: ((str(self.opt / "bin/rollbox-snapshotter"), verb), told) for verb in ("mounts", "serve")}
        return found

    async def keep(self) -> None:
        """Keeps services running until it is cancelled; then ends them."""
        async with asyncio.TaskGroup() as group:
            kept: set[str] = set()
            while True:
                for name in self._services().keys() - kept:
                    kept.add(name)
                    group.create_task(self._keep_one(name))
                await asyncio.sleep(0.1)

    async def _keep_one(self, name: str) -> None:
        path = {"PATH": f"{Path(program('containerd')).parent}:{SYSTEM_PATH}"}
        while True:
            if found := self._services().get(name):
                with (self.folder / f"{name}.log").open("ab") as log:
                    process = await asyncio.create_subprocess_exec(
                        *found[0], env=path | found[1], stdout=log, stderr=log
                    )
                self.pids[name] = process.pid
                try:
                    await process.wait()
                finally:
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
            await asyncio.sleep(0.2)

    async def boot(self) -> None:
        """Starts what it keeps running."""
        self.keeping = asyncio.create_task(self.keep())
        await until(self.answers, 30)

    async def stop(self) -> None:
        """Ends what is kept running."""
        if self.keeping is not None:
            self.keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.keeping

    async def reboot(self) -> None:
        """What a machine that loses its power leaves: disks, and neither processes, mounts nor sockets.

        File systems that are mounted as limits stay, as disks do.
        """
        await self.stop()
        while pids := self._processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.1)
        unmount(str(self.run), str(self.folder / "containerd"), str(self.folder / "snapshots"))
        for path in self.run.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        await self.boot()

    def end(self, name: str) -> None:
        """Ends a service with SIGKILL; it is started again."""
        os.kill(self.pids[name], signal.SIGKILL)

    def _processes(self) -> list[int]:
        """Those that name its folder of sockets: shims, and gVisor's kernels and gofers."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and f"{self.run}/".encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    async def answers(self) -> bool:
        """Whether its containerd does."""
        await asyncio.sleep(0.1)
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_unix_connection(f"{self.run}/containerd.sock")
            writer.close()
            return True
        return False


@contextlib.asynccontextmanager
async def bare_node(
    folder: Path, programs: Path, version: int = 3, limits: Mapping[str, str] | None = None
) -> AsyncIterator[BareNode]:
    """A node while the block runs; `limits` are folders of it that have a file system of this size each."""
    node = made(BareNode, folder, programs, version)
    for name, size in (limits or {}).items():
        (folder / name).mkdir()
        await ran("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder / name))
    try:
        await node.boot()
        yield node
    finally:
        await node.stop()
        unmount(str(node.run), str(folder))
        shutil.rmtree(node.run, ignore_errors=True)


async def ran(*command: str) -> None:
    """Runs a command that has to succeed."""
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0, command


Node = TypeVar("Node", bound=BareNode)


def made(kind: type[Node], folder: Path, programs: Path, version: int) -> Node:
    """The files of a node on which nothing runs yet."""
    run = Path(f"/run/rb-{os.urandom(3).hex()}")
    run.mkdir(mode=0o700)
    node = kind(folder, run, Path(shutil.copytree(programs, folder / "payload")))
    for one in (node.config.parent, node.opt):
        one.mkdir()
    node.config.write_text(SETTINGS.format(version=version, root=folder / "containerd", run=run))
    node.config.chmod(0o640)
    return node


def unmount(*folders: str) -> None:
    """Takes away what gVisor and the snapshotter have mounted there, the deepest first."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in sorted((one for one in points if one.startswith(tuple(f"{top}/" for top in folders))), key=len):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
