"""The node of a test of its own whose services a real systemd keeps: process 1 of namespaces of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.toolchain import SYSTEM_PATH, program
from tests.support.bare_node import BareNode, made, unmount
from tests.support.installed import ROOT
from tests.support.waiting import until

BOOT = ROOT / "node-go/internal/install/supervisor/testdata/systemd.sh"
MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
# As containerd's own unit has it.
CONTAINERD = """\
[Unit]
Description=containerd

[Service]
Type=notify
Environment=PATH={path}
ExecStart={program} --config {config}
Restart=always
RestartSec=1
KillMode=process
Delegate=yes

[Install]
WantedBy=multi-user.target
"""


@dataclass
class SystemdNode(BareNode):
    """One whose containerd is a unit, as what is installed becomes."""

    @property
    def machine(self) -> Path:
        return self.folder / "m"

    @property
    def units(self) -> Path:
        return self.machine / "units"

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """Also of units."""
        units = {
            str(path.relative_to(self.folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in sorted(self.units.rglob("*"))
        }
        return super().tree() | units

    async def call(self, method: str, *words: str) -> Any:
        """A method of systemd's manager; what it answers."""
        return await self._busctl("call", *MANAGER, method, *words)

    async def of(self, unit: str, name: str) -> Any:
        """A property of a unit, of its service where that has it."""
        (path,) = await self.call("LoadUnit", "s", unit)
        kind = "Service" if name in {"MainPID", "NRestarts"} else "Unit"
        return await self._busctl("get-property", MANAGER[0], path, f"org.freedesktop.systemd1.{kind}", name)

    async def _busctl(self, *words: str) -> Any:
        bus = f"--address=unix:path={self.machine}/bus"
        process = await asyncio.create_subprocess_exec(
            "busctl", bus, "--json=short", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return json.loads(out)["data"] if out.strip() else None

    async def killed(self, unit: str) -> None:
        """Its process is ended behind systemd's back, and another one runs."""
        before = await self.of(unit, "MainPID")
        assert before
        await self.call("KillUnit", "ssi", unit, "main", "9")

        async def another() -> bool:
            await asyncio.sleep(0.1)
            return await self.of(unit, "MainPID") not in (0, before)

        await until(another, 30)


@contextlib.asynccontextmanager
async def systemd_node(folder: Path, programs: Path) -> AsyncIterator[SystemdNode]:
    """A node while the block runs."""
    node = made(SystemdNode, folder, programs, 3)
    node.told |= {
        "KEEPER": "systemd",
        "BUS": str(node.machine / "bus"),
        "UNITS": str(node.units),
        "STARTS_SECONDS": "20",
    }
    node.units.mkdir(parents=True)
    path = f"{Path(program('containerd')).parent}:{SYSTEM_PATH}"
    text = CONTAINERD.format(path=path, program=program("containerd"), config=node.config)
    (node.units / "containerd.service").write_text(text)
    # It ends with its standard input.
    process = await asyncio.create_subprocess_exec(
        BOOT, str(node.machine), str(node.run), stdin=asyncio.subprocess.PIPE
    )
    try:
        await until(lambda: _answers(node), 30)
        await node.call("StartUnit", "ss", "containerd.service", "replace")
        await until(node.answers, 30)
        yield node
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        unmount(str(node.run), str(folder))
        shutil.rmtree(node.run, ignore_errors=True)


async def _answers(node: SystemdNode) -> bool:
    await asyncio.sleep(0.1)
    with contextlib.suppress(AssertionError):
        await node.call("LoadUnit", "s", "dbus.service")
        return True
    return False
