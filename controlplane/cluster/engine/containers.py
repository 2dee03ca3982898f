"""Builds the engine's create bodies for the two containers of a sandbox. Pure: no I/O, no clock.

The *target* has the user's image; its PID 1 is a tiny static binary that only waits. The *sidecar* joins the target's
PID and network namespaces. Commands run in the target's mount namespace but inherit the sidecar's cgroup, so the
sidecar's limits are the effective ones; the target has the same limits for programs that read their cgroup files.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controlplane.cluster.engine import mount_bodies, network_files
from controlplane.cluster.engine.cdi import Device
from controlplane.cluster.protocol import DEFAULT_PIDS, Boot
from controlplane.images import DIGEST
from controlplane.model import SandboxSpec
from controlplane.model.base import MIB

LABEL_SANDBOX: Final = "rollbox.sandbox"
LABEL_ROLE: Final = "rollbox.role"
LABEL_INSTALLATION: Final = "rollbox.installation"
LABEL_RECORD: Final = "rollbox.record"
LABEL_DEVICES: Final = "rollbox.devices"

TARGET: Final = "target"
SIDECAR: Final = "sidecar"

# In a folder that the container runtime makes anew in memory: elsewhere the mount would leave an empty file in what the
# sandbox has changed.
TARGET_COMMAND: Final = "/dev/rollbox/target"
SIDECAR_COMMAND: Final = "/rollbox-sidecar"
AGENT_DIR: Final = "/run/rollbox/agent"
READY_DIR: Final = "/run/rollbox/ready"
CAPABILITIES: Final = ("SYS_ADMIN", "SYS_PTRACE", "SYS_CHROOT")

# What the sidecar itself needs in addition to the sandbox's limits: a guess, three times what it uses when idle.
SIDECAR_MEMORY_BYTES: Final = 16 * MIB
SIDECAR_PIDS: Final = 8
# The log is read only for the reason of a sidecar's failure; it is kept small, since a sandbox must not fill the disk.
SIDECAR_LOG: Final = {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}}

Body = dict[str, object]

# Sandbox ids become directory names, so a label is taken for one only if it matches: any container can have our labels.
_ID: Final = re.compile(r"sb-[a-z0-9]{1,60}")


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine has: its id, and whether it defines a health check."""

    id: str
    health_check: bool = False

    @property
    def digest(self) -> str:
        """The id as a digest, of the image's configuration; empty if the engine's ids are none."""
        digest = f"sha256:{self.id.removeprefix('sha256:')}"
        return digest if DIGEST.fullmatch(digest) else ""


@dataclass(frozen=True, slots=True)
class Host:
    """Files and names of this machine that the sandboxes' containers use.

    Attributes:
        state_dir: holds ``sandboxes/ID/`` and ``ready/``.
        ready_socket: file name of the readiness socket inside ``ready/``.
        target_binary: bind-mounted into every target.
        sidecar_image: id of the image made from the sidecar's binary.
        installation: distinguishes the containers of two control planes on one engine.
        egress: settings of each sidecar about egress; empty: it is not installed.
        is_docker: a sidecar has its target's host name by itself, and one in its body is refused.
    """

    state_dir: Path
    ready_socket: str
    target_binary: Path
    sidecar_image: str
    installation: str
    egress: tuple[tuple[str, str], ...] = ()
    is_docker: bool = False

    def agent_dir(self, sandbox_id: str) -> Path:
        """The directory of the sandbox's sidecar socket."""
        return self.state_dir / "sandboxes" / sandbox_id

    def facts_file(self, sandbox_id: str) -> Path:
        """The file with the sandbox's annotated facts; outside of the directory that its sidecar can write."""
        return self.state_dir / "sandboxes" / f"{sandbox_id}.json"

    def names_dir(self, sandbox_id: str) -> Path:
        """The directory of the files by which the sandbox knows names."""
        return self.state_dir / "sandboxes" / f"{sandbox_id}.etc"

    def address(self, sandbox_id: str) -> str:
        """The address of the sandbox's sidecar."""
        return f"unix:{self.agent_dir(sandbox_id)}/agent.sock"


def name(sandbox_id: str, role: str) -> str:
    """The name of one of a sandbox's two containers."""
    return f"rollbox-{sandbox_id}-{role}"


def records_of(containers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Sandbox id -> record (empty when only the sidecar is there), from the labels of an installation's containers."""
    records: dict[str, str] = {}
    for labels in containers:
        sandbox_id = labels.get(LABEL_SANDBOX, "")
        if _ID.fullmatch(sandbox_id):
            records[sandbox_id] = labels.get(LABEL_RECORD) or records.get(sandbox_id, "")
    return records


def devices_of(containers: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    """Sandbox id -> names of the devices that it holds, from the same labels."""
    return {
        labels[LABEL_SANDBOX]: held.split(",")
        for labels in containers
        if (held := labels.get(LABEL_DEVICES)) and _ID.fullmatch(labels.get(LABEL_SANDBOX, ""))
    }


def target_body(
    sandbox_id: str, spec: SandboxSpec, boot: Boot, host: Host, image: Image, *, devices: Sequence[Device] = ()
) -> Body:
    """The create body of the target: the user's image with a main process that only waits.

    Args:
        sandbox_id: whose target it is.
        spec: what the sandbox asks for; its limits are set here too, for programs that read their control group.
        boot: has the record, which the target keeps as a label.
        host: folders and binaries of this machine.
        image: the user's, as the engine knows it.
        devices: that its commands open: their nodes, files and variables are the target's.
    """
    held = {LABEL_DEVICES: ",".join(device.name for device in devices)} if devices else {}
    variables = [one for device in devices for one in device.env]
    return {
        "Image": image.id,
        "Hostname": sandbox_id,
        "Entrypoint": [TARGET_COMMAND],
        "Cmd": [],
        # Disables the image's health check, which would run commands outside of any exec, in the target's cgroup. Set
        # only where the image has one: else Podman takes "NONE" for a health check and fails to find its timer.
        **({"Healthcheck": {"Test": ["NONE"]}} if image.health_check else {}),
        **({"Env": variables} if variables else {}),
        "Labels": {**_labels(sandbox_id, TARGET, host), LABEL_RECORD: boot.record, **held},
        "StopTimeout": 0,
        "HostConfig": {
            **_limits(spec, memory_bytes=0, pids=0),
            "NetworkMode": "none",
            "LogConfig": {"Type": "none"},
            "Binds": [
                f"{host.target_binary}:{TARGET_COMMAND}:ro",
                *network_files.binds(host.names_dir(sandbox_id)),
                *dict.fromkeys(bind for device in devices for bind in device.binds),
            ],
            **({"Mounts": mount_bodies.bodies(boot.mounts, host.installation)} if boot.mounts else {}),
            **_nodes(devices),
        },
    }


def sidecar_body(sandbox_id: str, spec: SandboxSpec, boot: Boot, host: Host, devices: Sequence[Device] = ()) -> Body:
    """The create body of the sidecar, beside the target of the same sandbox.

    Args:
        sandbox_id: whose sidecar it is.
        spec: what the sandbox asks for; commands run within the limits that are set here.
        boot: what the sidecar has to know to start.
        host: folders and binaries of this machine.
        devices: that commands open, which run in the sidecar's control group: it has the rules for devices.
    """
    beside = f"container:{name(sandbox_id, TARGET)}"
    return {
        "Image": host.sidecar_image,
        # By which the relay knows a program that asks for its own sandbox.
        **({} if host.is_docker else {"Hostname": sandbox_id}),
        "Entrypoint": [SIDECAR_COMMAND],
        "Cmd": [],
        "Env": [f"ROLLBOX_SIDECAR_{key}={value}" for key, value in _sidecar_settings(sandbox_id, spec, boot, host)],
        "Labels": _labels(sandbox_id, SIDECAR, host),
        "StopTimeout": 0,
        "HostConfig": {
            **_limits(spec, memory_bytes=SIDECAR_MEMORY_BYTES, pids=SIDECAR_PIDS),
            "NetworkMode": beside,
            "PidMode": beside,
            "LogConfig": SIDECAR_LOG,
            "CapAdd": list(CAPABILITIES),
            # The default AppArmor and SELinux profiles forbid mount and setns, even with the capabilities for them.
            "SecurityOpt": ["apparmor=unconfined", "label=disable"],
            "Binds": [
                f"{host.agent_dir(sandbox_id)}:{AGENT_DIR}",
                f"{host.state_dir / 'ready'}:{READY_DIR}:ro",
            ],
            **_nodes(devices),
        },
    }


def _sidecar_settings(sandbox_id: str, spec: SandboxSpec, boot: Boot, host: Host) -> list[tuple[str, str]]:
    return [
        ("SANDBOX_ID", sandbox_id),
        ("TARGET_COMMAND", TARGET_COMMAND),
        ("LISTEN", f"unix:{AGENT_DIR}/agent.sock"),
        ("READY_URL", f"unix:{READY_DIR}/{host.ready_socket}"),
        ("READY_TOKEN", boot.ready_token),
        ("TOKEN_PUBLIC_KEY", boot.token_public_key),
        ("START_TIMEOUT_MS", str(spec.start_timeout_ms)),
        ("CPU_LIMIT_MILLICORES", str(spec.cpu_millicores.limit)),
        ("MEMORY_LIMIT_BYTES", str(spec.memory_bytes.limit)),
        ("PIDS_LIMIT", str(_pids(spec))),
        *([("INTERPRETER", boot.interpreter)] if boot.interpreter else []),
        *host.egress,
    ]


def _nodes(devices: Sequence[Device]) -> Body:
    nodes = [
        {"PathOnHost": on_machine, "PathInContainer": inside, "CgroupPermissions": permissions}
        for on_machine, inside, permissions in dict.fromkeys(node for device in devices for node in device.nodes)
    ]
    return {"Devices": nodes} if nodes else {}


def _labels(sandbox_id: str, role: str, host: Host) -> dict[str, str]:
    return {LABEL_SANDBOX: sandbox_id, LABEL_ROLE: role, LABEL_INSTALLATION: host.installation}


def _limits(spec: SandboxSpec, *, memory_bytes: int, pids: int) -> Body:
    most_bytes = spec.memory_bytes.limit + memory_bytes
    return {
        "Memory": most_bytes,
        "MemorySwap": most_bytes,  # the sum of both: no swap
        "MemoryReservation": min(spec.memory_bytes.request, spec.memory_bytes.limit),
        "NanoCpus": spec.cpu_millicores.limit * 1_000_000,
        "CpuShares": max(2, spec.cpu_millicores.request * 1024 // 1000),
        "PidsLimit": _pids(spec) + pids,
    }


def _pids(spec: SandboxSpec) -> int:
    return DEFAULT_PIDS if spec.pids_limit is None else spec.pids_limit
