"""From a spec to the bodies that the engine wants: pure, no I/O, no clock.

Topology: the *target* runs the user's image, kept waiting by a tiny static binary, PID 1 of the sandbox. The *sidecar*
joins its PID and network namespaces. Commands run in the target's mount namespace but inherit the sidecar's cgroup,
so the limits that bite are the sidecar's; the target carries the same ones for programs that read their cgroup files.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controlplane.cluster.protocol import DEFAULT_PIDS, Boot
from controlplane.model import SandboxSpec
from controlplane.model.spec import MIB

LABEL_SANDBOX: Final = "rollbox.sandbox"
LABEL_ROLE: Final = "rollbox.role"
LABEL_INSTALLATION: Final = "rollbox.installation"
LABEL_RECORD: Final = "rollbox.record"

TARGET: Final = "target"
SIDECAR: Final = "sidecar"

TARGET_COMMAND: Final = "/.rollbox/target"
SIDECAR_COMMAND: Final = "/rollbox-sidecar"
AGENT_DIR: Final = "/run/rollbox/agent"
READY_DIR: Final = "/run/rollbox/ready"
CAPABILITIES: Final = ("SYS_ADMIN", "SYS_PTRACE", "SYS_CHROOT")

# What the sidecar itself needs on top of what the user was promised: a guess of three times what it uses idle.
SIDECAR_MEMORY_BYTES: Final = 16 * MIB
SIDECAR_PIDS: Final = 8
# The sidecar says why it gave up; more than that nobody reads, and nothing of a sandbox may fill the disk.
SIDECAR_LOG: Final = {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}}

Body = dict[str, object]

# Ids become names of folders: nothing else that a stranger's container may carry in our labels is taken for one.
_ID: Final = re.compile(r"sb-[a-z0-9]{1,60}")


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine has: its id there, and whether it brings a health check."""

    id: str
    health_check: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """What the sandboxes' containers borrow from the machine.

    Attributes:
        state_dir: holds ``sandboxes/ID/`` and ``ready/``.
        ready_socket: file name of the readiness socket inside ``ready/``.
        target_binary: bind-mounted into every target.
        sidecar_image: id of the image made from the sidecar's binary.
        installation: tells the containers of two control planes on one engine apart.
    """

    state_dir: Path
    ready_socket: str
    target_binary: Path
    sidecar_image: str
    installation: str

    def agent_dir(self, sandbox_id: str) -> Path:
        """Where the sidecar's socket of this sandbox lies."""
        return self.state_dir / "sandboxes" / sandbox_id

    def facts_file(self, sandbox_id: str) -> Path:
        """What was annotated; outside of what the sidecar can write."""
        return self.state_dir / "sandboxes" / f"{sandbox_id}.json"

    def address(self, sandbox_id: str) -> str:
        """Where the sidecar of this sandbox answers."""
        return f"unix:{self.agent_dir(sandbox_id)}/agent.sock"


def name(sandbox_id: str, role: str) -> str:
    """The name of one of the two containers."""
    return f"rollbox-{sandbox_id}-{role}"


def records_of(containers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Sandbox id -> record (empty when only the sidecar is there), from the labels of an installation's containers."""
    records: dict[str, str] = {}
    for labels in containers:
        sandbox_id = labels.get(LABEL_SANDBOX, "")
        if _ID.fullmatch(sandbox_id):
            records[sandbox_id] = labels.get(LABEL_RECORD) or records.get(sandbox_id, "")
    return records


def target_body(sandbox_id: str, spec: SandboxSpec, boot: Boot, host: Host, image: Image) -> Body:
    """The create body of the target: the user's image, made to wait."""
    return {
        "Image": image.id,
        "Entrypoint": [TARGET_COMMAND],
        "Cmd": [],
        # It would run outside of every exec, in the target's control group. Said only where there is one: Podman
        # otherwise takes the word for a health check of its own and looks for its timer.
        **({"Healthcheck": {"Test": ["NONE"]}} if image.health_check else {}),
        "Labels": {**_labels(sandbox_id, TARGET, host), LABEL_RECORD: boot.record},
        "StopTimeout": 0,
        "HostConfig": {
            **_limits(spec, memory_bytes=0, pids=0),
            "NetworkMode": "none",
            "LogConfig": {"Type": "none"},
            "Binds": [f"{host.target_binary}:{TARGET_COMMAND}:ro"],
        },
    }


def sidecar_body(sandbox_id: str, spec: SandboxSpec, boot: Boot, host: Host) -> Body:
    """The create body of the sidecar, beside the target of the same sandbox."""
    beside = f"container:{name(sandbox_id, TARGET)}"
    return {
        "Image": host.sidecar_image,
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
            # The profiles that engines load by default forbid mount and setns, whatever the capabilities say.
            "SecurityOpt": ["apparmor=unconfined", "label=disable"],
            "Binds": [
                f"{host.agent_dir(sandbox_id)}:{AGENT_DIR}",
                f"{host.state_dir / 'ready'}:{READY_DIR}:ro",
            ],
        },
    }


def _sidecar_settings(sandbox_id: str, spec: SandboxSpec, boot: Boot, host: Host) -> list[tuple[str, str]]:
    return [
        ("SANDBOX_ID", sandbox_id),
        ("LISTEN", f"unix:{AGENT_DIR}/agent.sock"),
        ("READY_URL", f"unix:{READY_DIR}/{host.ready_socket}"),
        ("READY_TOKEN", boot.ready_token),
        ("TOKEN_PUBLIC_KEY", boot.token_public_key),
        ("START_TIMEOUT_MS", str(spec.start_timeout_ms)),
        ("MEMORY_LIMIT_BYTES", str(spec.memory_bytes.limit)),
        ("PIDS_LIMIT", str(_pids(spec))),
    ]


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
