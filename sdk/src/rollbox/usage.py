"""What a sandbox uses. Pure: JSON in, a dataclass out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Usage:
    """What a sandbox uses at one moment; a limit is None where there is none, or none is known.

    Attributes:
        cpu_ms: cpu time since the start of the sandbox, in all; what runs its processes (its kernel) included.
        memory_bytes: without memory that the kernel can reclaim.
        memory_limit_bytes: what it may use.
        disk_bytes: written on the root file system, without the image; None where that is a part of the node's disk, as
            on an engine: `df /` in the sandbox shows all of that.
        disk_limit_bytes: how much may be written, as `disk=` says.
        processes: all processes and threads.
        processes_limit: how many there may be.
        cpu_counted_by: "node": `cpu_ms` is time on processors. "sandbox": its own kernel (gVisor) has counted, since no
            node agent is there: what only waited for a processor is in it, so it may be several times as much.
        memory_files_bytes: of `memory_bytes`, files in /dev/shm, and in a /tmp that is in memory.
    """

    cpu_ms: float
    memory_bytes: int
    memory_limit_bytes: int | None
    disk_bytes: int | None
    disk_limit_bytes: int | None
    processes: int
    processes_limit: int | None
    cpu_counted_by: Literal["node", "sandbox"]
    memory_files_bytes: int

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Usage:
        """Read the wire form; fields that this version does not know are left out."""
        return cls(**{item.name: body[item.name] for item in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        """Write the wire form, for `--json`."""
        return asdict(self)
