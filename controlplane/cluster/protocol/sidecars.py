"""``Sidecars``: the client of the sidecars; ``Gateways``: the path that callers use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.egress import EgressAttempt


@dataclass(frozen=True, slots=True)
class Health:
    """A sidecar's answer to a health check, given after its spawner has answered.

    Attributes:
        acknowledged: whether the control plane has acknowledged its readiness push, so that the create may have been
            answered.
        quiet_ms: time since the last user call was in progress, through any gateway; None: the sidecar does not know.
        running_execs: the number of running commands, also of those that no caller waits for.
    """

    sandbox_id: str
    kernel: str
    uptime_ms: int
    acknowledged: bool = False
    quiet_ms: int | None = None
    running_execs: int = 0


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """What a sandbox uses; a limit of 0 is not known, or none.

    Attributes:
        cpu_ms: CPU time since the start.
        disk_bytes: written on the root file system; None: only known together with what the node's other programs use.
        cpu_by_node: whether ``cpu_ms`` is time on processors; else what waited for one is in it.
    """

    cpu_ms: int
    memory_bytes: int
    memory_limit_bytes: int
    disk_bytes: int | None
    disk_limit_bytes: int
    processes: int
    processes_limit: int
    cpu_by_node: bool


@dataclass(frozen=True, slots=True)
class Command:
    """A command that runs in a sandbox or has run there, as far as its sidecar still knows it.

    Attributes:
        started_at_ms: Unix time.
        end: how it ended, as in the API: ``exited``, ``deadline``, ...; empty while it runs.
    """

    exec_id: str
    argv: Sequence[str]
    started_at_ms: int
    end: str
    exit_code: int
    stdout_bytes: int
    stderr_bytes: int


class Sidecars(Protocol):
    """The client of the sidecars. Every failure is a ``Problem``."""

    async def usage(self, address: str, token: str) -> SandboxUsage:
        """What the sandbox uses; does not count as a use of it."""
        ...

    async def commands(self, address: str, token: str) -> Sequence[Command]:
        """Its commands, newest first; does not count as a use of it."""
        ...

    async def refused(self, address: str, token: str) -> Sequence[EgressAttempt]:
        """What it has refused its programs by itself, without a link to egress, oldest first; not a use of it."""
        ...

    async def health(self, address: str, token: str) -> Health:
        """Checks whether commands can run in the sandbox."""
        ...

    async def ran(self, address: str, token: str, command: str, within_ms: int) -> str:
        """Runs a command line in the sandbox by its shell; how that failed, empty: it exited with 0.

        Args:
            address: of the sidecar.
            token: for it.
            command: for ``bash -c``, or ``sh -c`` where there is no bash.
            within_ms: how long it may run.

        Raises:
            Problem: exec_deadline: it was not over in time; it was not run.
        """
        ...

    async def tried(self, address: str, token: str, argv: Sequence[str]) -> str:
        """Runs a command in the sandbox that reads its image; why its exit code says that it failed, empty: it did not.

        An image without the command passes: that it has none was read in it.

        Raises:
            Problem: it was not run, or killed, which says nothing about the image.
        """
        ...


class Gateways(Protocol):
    """Probes sandboxes through a gateway, the path that callers use."""

    async def reaches(self, sandbox_id: str, token: str) -> bool | None:
        """Whether a gateway gets an answer from the sidecar; None: inconclusive. Never raises a ``Problem``."""
        ...
