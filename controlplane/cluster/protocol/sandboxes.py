"""``Sandboxes``: what every backend does: starts, stops and watches sandboxes."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from controlplane.cluster.protocol.mounts import Bound
from controlplane.errors import Code
from controlplane.model import SandboxSpec


@dataclass(frozen=True, slots=True)
class Boot:
    """The parameters of a start besides the spec.

    Attributes:
        ready_token: the credential of the readiness push; valid for this sandbox only.
        token_public_key: the key with which the sidecar verifies tokens; base64url, 32 raw bytes.
        record: a text of the control plane's; stored with the sandbox and returned by ``list``.
        avoid: nodes at their limit of concurrent starts; other nodes are preferred.
        layers: of its image, with their bytes, so that nodes that have some can be preferred; empty: not known.
        start_by_ms: the start's deadline (Unix time); 0: its start timeout from now.
        unclaimed: nobody has it yet, so it may be ended with its node.
        mounts: what it has besides its image.
        interpreter: what it keeps running for the first caller that asks for an interpreter; empty: nothing.
    """

    ready_token: str
    token_public_key: str
    record: str
    avoid: Sequence[str] = ()
    layers: Mapping[str, int] = field(default_factory=dict)
    start_by_ms: int = 0
    unclaimed: bool = False
    mounts: Sequence[Bound] = ()
    interpreter: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """The result of a start that has begun.

    Attributes:
        address: the sidecar's future address, if the cluster knows it before the readiness push.
        timings_ms: the time that the cluster has spent, by phase (``pull`` only if it pulled the image).
    """

    address: str | None
    timings_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Death:
    """A sandbox that the cluster reports as dead although no stop was requested."""

    sandbox_id: str
    cause: Code
    detail: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What the cluster has of one sandbox.

    Attributes:
        record: ``Boot.record`` of its start; empty if that is lost.
        facts: what ``annotate`` has added since.
        address: its sidecar's address, if known.
        death: set if it does not run, or if only a part of it runs.
    """

    sandbox_id: str
    record: str
    facts: Mapping[str, str]
    address: str | None
    death: Death | None


# The default limit of processes: a fork bomb must not bring down the machine, or its own sandbox as a whole.
DEFAULT_PIDS: Final = 512


@dataclass(frozen=True, slots=True)
class Description:
    """What this cluster is, for ``/v1/info``, the records and the output of ``rollbox up``.

    Attributes:
        isolation: the container runtime that isolates sandboxes, for example ``runc``.
        isolation_detail: what that means, in a sentence.
        network: what a sandbox can reach: ``none``.
        pids_limit: the default limit of processes in a sandbox; None: this cluster cannot limit them.
        commits: see ``Commits.place``; empty: no images are made of sandboxes.
    """

    backend: str
    engine_name: str
    engine_version: str
    isolation: str
    isolation_detail: str
    network: str
    pids_limit: int | None = None
    commits: str = ""


@dataclass(frozen=True, slots=True)
class SandboxNode:
    """The node that a sandbox is on, and whether that node is Ready."""

    node: str
    ready: bool


class Sandboxes(Protocol):
    """Starts, stops and watches sandboxes."""

    def describe(self) -> Description:
        """Describes this cluster; known once it is open."""
        ...

    def check(self, spec: SandboxSpec) -> None:
        """Refuses a spec that this cluster cannot honour.

        Raises:
            Problem: ``unsupported``, naming the option.
        """
        ...

    def check_kernel(self, kernel: str) -> None:
        """Checks that a sandbox's kernel is that of the configured isolation.

        Args:
            kernel: ``/proc/version``, as read by a command in the sandbox.

        Raises:
            Problem: ``isolation_missing``.
        """
        ...

    async def start(self, sandbox_id: str, spec: SandboxSpec, boot: Boot) -> Started:
        """Begins a start and returns; the sidecar's push says when it is ready.

        A call that fails or is cancelled leaves nothing behind, or only what ``stop`` removes.

        Raises:
            Problem: image_not_found, image_pull_failed, capacity_unavailable, unsupported, internal, ...
        """
        ...

    async def undo_start(self, sandbox_id: str) -> None:
        """Removes what ``start`` has begun of a sandbox that is not ready; then ``start`` can begin it anew.

        No watch of any replica reports a death for it.

        Raises:
            Problem: the cluster has not confirmed it.
        """
        ...

    async def stop(self, sandbox_id: str) -> None:
        """Kills a sandbox and returns when nothing of it is left. Success if it is unknown or gone already.

        Raises:
            Problem: the cluster has not confirmed it; a retry is safe.
        """
        ...

    @property
    def stops_at_once(self) -> int:
        """How many concurrent stops it allows; the control plane makes further ones wait."""
        ...

    async def list(self) -> Sequence[Observed]:
        """All sandboxes of this installation of which the cluster has at least a part."""
        ...

    def watch(self) -> AsyncIterator[Death]:
        """Yields deaths as the cluster reports them, without end; it reconnects by itself.

        Every death is yielded at least once, also one that happened while the connection was lost. Deaths that
        ``stop`` caused may be among them.
        """
        ...

    async def annotate(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        """Stores facts with a sandbox; ``list`` returns them, also after a restart of the control plane."""
        ...

    @property
    def annotates_behind(self) -> bool:
        """Whether facts may be written in the background after a create's answer, since a write is a network call."""
        ...

    def pushed(self, sandbox_id: str, address: str) -> None:
        """Takes note of the address that a readiness push has named; a sandbox with another one is reported dead."""
        ...

    @property
    def own_ports(self) -> frozenset[int]:
        """Ports of a sandbox on which its sidecar listens, so that nobody reaches them as the sandbox's."""
        ...

    def node_of(self, sandbox_id: str) -> SandboxNode | None:
        """The node of a sandbox, by the last event; None: not known. Cost: no call."""
        ...

    async def cpu_us(self, sandbox_id: str) -> int | None:
        """The time on processors of a sandbox that runs, by its node's word; None: nobody is there to say it.

        Raises:
            Problem: the one who could does not answer.
        """
        ...
