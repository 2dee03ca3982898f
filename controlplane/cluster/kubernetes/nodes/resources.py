"""Requests and limits of a sandbox's containers. Pure.

Under gVisor the effective limits are the pod's, which are the sum of both containers'. Under another runtime a command
counts for the sidecar's container, since it is forked there, so that container has the command's limits as well.
"""

from typing import Any, Final

from controlplane.capacity.amounts import GPU
from controlplane.model import SandboxSpec
from controlplane.model.base import MIB

DEFAULT_DISK_BYTES: Final = 2048 * MIB
# The disk request, much less than the limit: nodes are packed by memory, and few sandboxes fill their disk.
DISK_REQUEST_BYTES: Final = 64 * MIB
# Measured (docs/capacity.md): idle, a sandbox takes 32 MiB with its gVisor kernel, which counts for the pod, 16 for its
# shims, which do not, and half a millicore. These requests and the RuntimeClass's overhead cover that. The limit leaves
# the kernel room.
SIDECAR_CPU_REQUEST_MILLICORES: Final = 5
SIDECAR_CPU_MILLICORES: Final = 100
SIDECAR_MEMORY_REQUEST_BYTES: Final = 16 * MIB
SIDECAR_MEMORY_BYTES: Final = 72 * MIB
SIDECAR_DISK_BYTES: Final = 64 * MIB

Json = dict[str, Any]


def request_of(spec: SandboxSpec) -> dict[str, int]:
    """The sandbox's requests by resource, sidecar included: in millicores, bytes, bytes and devices."""
    return {
        "cpu": spec.cpu_millicores.request + SIDECAR_CPU_REQUEST_MILLICORES,
        "memory": spec.memory_bytes.request + SIDECAR_MEMORY_REQUEST_BYTES,
        "ephemeral-storage": min(DISK_REQUEST_BYTES, disk_bytes(spec)) + SIDECAR_DISK_BYTES,
        GPU: spec.gpu,
    }


def disk_bytes(spec: SandboxSpec) -> int:
    """The sandbox's disk limit."""
    return DEFAULT_DISK_BYTES if spec.disk_bytes is None else spec.disk_bytes


def of_target(spec: SandboxSpec) -> Json:
    """Requests and limits of the target's container; its devices are claims (``pods/claims.py``)."""
    most = disk_bytes(spec)
    return {
        "requests": _amounts(spec.cpu_millicores.request, spec.memory_bytes.request, min(DISK_REQUEST_BYTES, most)),
        "limits": _amounts(spec.cpu_millicores.limit, spec.memory_bytes.limit, most),
    }


def of_sidecar(spec: SandboxSpec, *, commands_inside: bool) -> Json:
    """Requests and limits of the sidecar's container; ``commands_inside``: the user's commands count for it."""
    cpu, memory, disk = SIDECAR_CPU_MILLICORES, SIDECAR_MEMORY_BYTES, SIDECAR_DISK_BYTES
    if commands_inside:
        cpu, memory = cpu + spec.cpu_millicores.limit, memory + spec.memory_bytes.limit
    return {
        "requests": _amounts(SIDECAR_CPU_REQUEST_MILLICORES, SIDECAR_MEMORY_REQUEST_BYTES, disk),
        "limits": _amounts(cpu, memory, disk),
    }


def _amounts(millicores: int, memory_bytes: int, storage_bytes: int) -> dict[str, str]:
    return {"cpu": f"{millicores}m", "memory": str(memory_bytes), "ephemeral-storage": str(storage_bytes)}
