"""The container in whose namespaces and limits the steps of a build run. Pure.

An engine's builder gives each RUN a container of its own that no call of the engine's ends. So its processes are put
into the namespaces of one that the engine does end, and its control group below that one's: with it all of them go.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from controlplane.cluster.engine.containers import LABEL_INSTALLATION, TARGET, TARGET_COMMAND, Body, Host
from controlplane.cluster.engine.containers import name as sandbox_container
from controlplane.egress import package_variables
from controlplane.model.base import MIB

LABEL_BUILD: Final = "rollbox.build"
MEMORY_BYTES: Final = 4096 * MIB
PIDS: Final = 4096
# A quarter of a sandbox's that asks for one core: builds leave the processors to rollouts.
CPU_SHARES: Final = 256
# Of each sandbox with egress, as its sidecar tells its commands (``sidecar/src/spawner/proxies.rs``).
RELAY: Final = "http://127.0.0.1:3128"
RELAY_DNS: Final = "127.0.0.1"
WITHOUT_RELAY: Final = "localhost,127.0.0.1,::1"
NAMESPACES: Final = {"network": "net", "pid": "pid", "ipc": "ipc"}


def name(build_id: str) -> str:
    """The name of a build's container."""
    return f"rollbox-build-{build_id}"


def body(build_id: str, host: Host, network: str = "") -> Body:
    """The create body of it: our own image, a main process that only waits.

    Args:
        build_id: of the build.
        host: folders and binaries of this machine.
        network: the sandbox whose network it shares; empty: it has none.
    """
    return {
        "Image": host.sidecar_image,
        "Entrypoint": [TARGET_COMMAND],
        "Cmd": [],
        "Labels": {LABEL_BUILD: build_id, LABEL_INSTALLATION: host.installation},
        "StopTimeout": 0,
        "HostConfig": {
            "Memory": MEMORY_BYTES,
            "MemorySwap": MEMORY_BYTES,
            "PidsLimit": PIDS,
            "CpuShares": CPU_SHARES,
            "NetworkMode": f"container:{sandbox_container(network, TARGET)}" if network else "none",
            "LogConfig": {"Type": "none"},
            "Binds": [f"{host.target_binary}:{TARGET_COMMAND}:ro"],
        },
    }


@dataclass(frozen=True, slots=True)
class Inside:
    """Where the steps of a build run.

    Attributes:
        container: the name of the holder.
        pid: of the holder's main process, on this machine.
        cgroups: the content of its ``/proc/PID/cgroup``.
        reaches: it has the network of a sandbox, with the relay of that.
    """

    container: str
    pid: int
    cgroups: str
    reaches: bool = False

    @property
    def arguments(self) -> dict[str, str]:
        """Arguments of a build that every RUN has as variables, and no image: by them programs find the relay."""
        if not self.reaches:
            return {}
        proxies = dict.fromkeys(("http_proxy", "https_proxy"), RELAY)
        told = {**proxies, "no_proxy": WITHOUT_RELAY}
        return {**told, **{name.upper(): value for name, value in told.items()}}

    def indexes(self, cached: str) -> Mapping[str, str]:
        """Arguments of its stages by which package managers find the package cache, as in a sandbox.

        Args:
            cached: the indexes that it has, with commas between; empty: there is none.
        """
        return package_variables(cached.split(",")) if self.reaches and cached else {}

    @property
    def query(self) -> dict[str, str | int | bool]:
        """Parameters of a build that put it there."""
        namespaces = [{"Name": ours, "Path": f"/proc/{self.pid}/ns/{kernels}"} for ours, kernels in NAMESPACES.items()]
        told: dict[str, str | int | bool] = {
            # In Podman's words: it takes Docker's for the machine's own network. The first one has it make a network
            # namespace without anything; the second one has it take the one that is named.
            "networkmode": "NetworkEnabled" if self.reaches else "NetworkDisabled",
            "dnsservers": json.dumps([RELAY_DNS]) if self.reaches else "[]",
            "nsoptions": json.dumps(namespaces),
            "memory": MEMORY_BYTES,
            "memswap": MEMORY_BYTES,
        }
        parent = self._group()
        return {**told, "cgroupparent": f"{parent}/build"} if parent else told

    def _group(self) -> str:
        """Its control group, below which another can be made; empty: systemd has them."""
        lines = [line.split(":", 2) for line in self.cgroups.splitlines() if line.count(":") >= 2]
        paths = {controllers: path for _, controllers, path in lines}
        path = paths.get("pids") or paths.get("", "")
        return "" if PurePosixPath(path).suffix in (".scope", ".slice", ".service") or path == "/" else path
