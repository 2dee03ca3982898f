"""What the control plane asks of the place where sandboxes run. Honest for Kubernetes as for an engine.

Readiness is not here: it comes by push, from the sidecar. ``tests/contract/cluster_suite.py`` is what every backend
passes. Every failure is a ``Problem``.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from controlplane.errors import Code
from controlplane.model import SandboxSpec, Usage


@dataclass(frozen=True, slots=True)
class Boot:
    """What a start brings along besides the spec.

    Attributes:
        ready_token: the credential of the readiness push; good for this sandbox only.
        token_public_key: with it the sidecar verifies tokens; base64url, 32 raw bytes.
        record: the control plane's own text; kept beside the sandbox and given back by ``list``.
        avoid: nodes that have as many starts as they bear: others are preferred.
    """

    ready_token: str
    token_public_key: str
    record: str
    avoid: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """A start has begun.

    Attributes:
        address: where the sidecar will answer, if the cluster knows before the push says so.
        timings_ms: what the cluster has spent, by phase (``pull`` only when it pulled).
    """

    address: str | None
    timings_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Death:
    """A sandbox was seen dead, from outside: nobody asked for it here."""

    sandbox_id: str
    cause: Code
    detail: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a sandbox is that was sent to the cluster.

    Attributes:
        node: empty: no node takes it.
        why: in the cluster's words, where none does.
    """

    sandbox_id: str
    node: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the cluster holds of one sandbox.

    Attributes:
        record: the text that its boot brought; empty when it is lost.
        facts: what ``annotate`` has added since.
        address: where its sidecar answers, if known.
        death: set when it does not run (any more), or only in part.
    """

    sandbox_id: str
    record: str
    facts: Mapping[str, str]
    address: str | None
    death: Death | None


# Of a sandbox that asks for none: a loop that forks must not take the machine, or all of its own sandbox, with it.
DEFAULT_PIDS: Final = 512


@dataclass(frozen=True, slots=True)
class Description:
    """What this cluster is, for ``/v1/info``, the records and the words at start.

    Attributes:
        isolation: the runtime that keeps sandboxes apart, for example ``runc``.
        isolation_detail: what that means, in a plain sentence.
        network: what a sandbox can reach: ``none``.
        pids_limit: of a sandbox that asks for none; None: this cluster cannot limit it.
    """

    backend: str
    engine_name: str
    engine_version: str
    isolation: str
    isolation_detail: str
    network: str
    pids_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """On which node a sandbox is, and whether the cluster says that the node is well."""

    node: str
    ready: bool


# On the machine; in its registry; not known before it is pulled.
ImageState = Literal["here", "elsewhere", "unknown"]


class Cluster(Protocol):
    """Starts, stops and watches sandboxes."""

    def describe(self) -> Description:
        """What this cluster is; known once it is open."""
        ...

    def check(self, spec: SandboxSpec) -> None:
        """Refuses what this cluster cannot honour.

        Raises:
            Problem: ``unsupported``, naming the option.
        """
        ...

    def vouch(self, kernel: str) -> None:
        """Checks that this is the kernel of the isolation that was promised.

        Args:
            kernel: ``/proc/version`` as a command in the sandbox sees it.

        Raises:
            Problem: ``isolation_missing``.
        """
        ...

    def starts_at_once(self) -> int:
        """How many starts the nodes bear at one time, as they are now; 0 when none can take one."""
        ...

    @property
    def starts_per_node(self) -> int:
        """How many starts one node bears at one time; 0: there are no nodes to tell apart, and no placements."""
        ...

    def placement(self, sandbox_id: str) -> Placement | None:
        """Where it is, as far as was heard; None: not known, or not sent. Cost: no call."""
        ...

    def placements(self) -> AsyncIterator[Placement]:
        """Changes of placements, without end, also of sandboxes that other replicas start; the last one counts."""
        ...

    def holds(self, spec: SandboxSpec, beside: Usage) -> int | None:
        """How many of ``spec`` the nodes have room for beside sandboxes that use ``beside`` in all, at most.

        What is not ours on the nodes is not counted. None: not known here. Cost: no call.
        """
        ...

    async def image(self, name: str) -> ImageState:
        """Where an image is, as far as it can be told without pulling it. Cost: a few calls.

        Raises:
            Problem: image_not_found or unsupported, when it is certain that no sandbox can be started from it.
        """
        ...

    @property
    def annotates_behind(self) -> bool:
        """Whether facts may be written after the sandbox is announced: where a write costs a call to a server."""
        ...

    @property
    def stops_at_once(self) -> int:
        """How many stops it bears at one time; the others wait here."""
        ...

    async def start(self, sandbox_id: str, spec: SandboxSpec, boot: Boot) -> Started:
        """Begins a start and returns; the sidecar's push tells when it is ready.

        Raises:
            Problem: image_not_found, image_pull_failed, capacity_unavailable, unsupported, internal, ...

        A call that fails or is cancelled leaves nothing behind, or what ``stop`` removes.
        """
        ...

    async def stop(self, sandbox_id: str) -> None:
        """Kills the sandbox and returns when nothing of it is left. Unknown or gone is success.

        Raises:
            Problem: the cluster has not confirmed; calling again is safe.
        """
        ...

    def whereabouts(self, sandbox_id: str) -> Whereabouts | None:
        """Where a sandbox is, by what was heard last; None: not known. Cost: no call."""
        ...

    async def annotate(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        """Adds facts that ``list`` gives back, also after a restart."""
        ...

    async def list(self) -> Sequence[Observed]:
        """All sandboxes of this installation that the cluster holds anything of."""
        ...

    def watch(self) -> AsyncIterator[Death]:
        """Deaths as they are seen, without end; it reconnects by itself.

        Every death is yielded at least once, also one that happened while the connection was lost. Deaths that
        ``stop`` caused may be among them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Health:
    """A sidecar's proof of life: its spawner has answered.

    Attributes:
        acknowledged: its readiness push was: its creator may have been told.
        quiet_ms: since a call of a user was under way last, whoever's gateway it came through; None: it does not know.
        running_execs: commands that run, also those that nobody waits for.
    """

    sandbox_id: str
    kernel: str
    uptime_ms: int
    acknowledged: bool = False
    quiet_ms: int | None = None
    running_execs: int = 0


class Sidecars(Protocol):
    """Speaks to the sidecar inside a sandbox. Every failure is a ``Problem``."""

    async def configure(self, address: str, token: str, spec: SandboxSpec) -> None:
        """Binds environment, working directory and user; the sidecar keeps them for all later commands."""
        ...

    async def health(self, address: str, token: str) -> Health:
        """Asks whether commands can run there."""
        ...


class Gateways(Protocol):
    """Looks at a sandbox from where its users do."""

    async def reaches(self, sandbox_id: str, token: str) -> bool | None:
        """Whether a gateway gets an answer from its sidecar; None: no gateway could say. Never raises a ``Problem``."""
        ...
