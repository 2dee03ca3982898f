"""``Cluster``: the protocol of the backends that sandboxes run on, Kubernetes and container engines alike.

Readiness is not part of it: the sidecar pushes that. Every backend passes ``tests/contract/cluster_suite.py``. Every
failure is a ``Problem``.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from controlplane.capacity import Amounts, Room
from controlplane.cluster.drains import NodeDrains
from controlplane.egress import EgressAttempt
from controlplane.errors import Code, Problem
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
    """

    ready_token: str
    token_public_key: str
    record: str
    avoid: Sequence[str] = ()
    layers: Mapping[str, int] = field(default_factory=dict)
    start_by_ms: int = 0
    unclaimed: bool = False


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
class Placement:
    """The node that the cluster's scheduler has chosen for a sandbox.

    Attributes:
        node: empty: the sandbox fits on no node at present.
        why: the scheduler's reason, if it fits on none; the node's, if that has turned it away.
        turned_away_by: the node that the scheduler had chosen, and that has refused it; ``node`` is empty then.
    """

    sandbox_id: str
    node: str
    why: str = ""
    turned_away_by: str = ""


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
        commits: see ``Cluster.commits``.
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


@dataclass(frozen=True, slots=True)
class Pulling:
    """A pull that is under way.

    Attributes:
        node: that pulls.
        image: as the node was given it.
        since_ms: when it began (Unix ms), by the node's clock.
    """

    node: str
    image: str
    since_ms: int


# Of an image of which nothing is known.
NO_LAYERS: Final[Mapping[str, int]] = {}
# On the machine; not there, but in its registry; not known before it is pulled.
ImageState = Literal["here", "elsewhere", "unknown"]


@dataclass(frozen=True, slots=True)
class NodeImage:
    """An image that a node has.

    Attributes:
        names: those that the node knows it by, with tags; empty: only its digest is known.
        digest: what ``digest`` and records name it by; empty: the node does not tell one.
        size_bytes: what it takes on the node; what images share is counted in each of them.
        lazy: whether it is pulled lazily; None: the node does not tell.
        last_used_ms: when a sandbox last ran from it (Unix ms); None: not known.
        brought_ms: when it came there for sandboxes alone (Unix ms); None: somebody else may need it, or not known.
        containers: how many exist of it.
    """

    node: str
    names: Sequence[str]
    digest: str
    size_bytes: int
    lazy: bool | None = None
    last_used_ms: int | None = None
    brought_ms: int | None = None
    containers: int = 0


@dataclass(frozen=True, slots=True)
class NodeStore:
    """What a node has of images, and on what file system.

    Attributes:
        images: also those that only the platform needs.
        disk_bytes: the size of the file system; None: not known.
    """

    node: str
    images: Sequence[NodeImage]
    disk_bytes: int | None


PrefetchState = Literal["pulling", "here", "failed"]


@dataclass(frozen=True, slots=True)
class PrefetchProgress:
    """How far a node is with the pull of an image.

    Attributes:
        state: ``here`` and ``failed`` are a node's last ones.
        done_bytes: what it has of those layers of which the sizes are known.
        total_bytes: the sizes of all layers; None: not known (yet).
        failure: why it failed.
    """

    node: str
    state: PrefetchState
    done_bytes: int = 0
    total_bytes: int | None = None
    failure: Problem | None = None


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """What a sandbox has opened of its image.

    Attributes:
        paths: in the order of the first times.
        more: these are not all.
    """

    paths: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """An image that was made of a sandbox.

    Attributes:
        name: the target, as ``commit`` was given it.
        digest: by which ``start`` takes it.
        size_bytes: of its new layer, as it is kept.
        skipped: what of the sandbox is not in the image, each with the reason; bounded.
    """

    name: str
    digest: str
    size_bytes: int
    skipped: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CommittedImage:
    """An image that was made of a sandbox, as the cluster keeps it.

    Attributes:
        name: below ``Cluster.commits``, without a tag.
        tags: those that it has now; none: a later commit to the name took the last one.
        digest: by which ``start`` takes it.
        size_bytes: of its own layer, as it is kept.
        created_at_ms: when it was made (Unix ms).
        built_on: digests of those of the same owner whose layers it has too.
    """

    name: str
    tags: Sequence[str]
    digest: str
    size_bytes: int
    created_at_ms: int
    built_on: Sequence[str] = ()


class Cluster(Protocol):
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

    def starts_at_once(self) -> int:
        """How many concurrent starts the Ready nodes allow now; 0 when no node can take one."""
        ...

    @property
    def starts_per_node(self) -> int:
        """How many concurrent starts one node allows; 0: the cluster is one machine and reports no placements."""
        ...

    def placement(self, sandbox_id: str) -> Placement | None:
        """A sandbox's placement by the last event; None: not known, or not started. Cost: no call."""
        ...

    async def pulling(self, sandbox_id: str) -> Pulling | None:
        """Which image the node of a sandbox that starts pulls now; None: none, or that is not known. Cost: a call.

        Raises:
            Problem: the cluster does not answer.
        """
        ...

    def placements(self) -> AsyncIterator[Placement]:
        """Yields changes of placements, without end, also of other replicas' starts; a sandbox's last one is valid."""
        ...

    @property
    def node_drains(self) -> NodeDrains | None:
        """Which nodes are emptied; None: the cluster is one machine, and stops with all its sandboxes."""
        ...

    @property
    def room(self) -> Room | None:
        """What is free on the nodes, kept current; None: this cluster sets nothing aside for sandboxes. Cost: no call.

        Sandboxes are in it by their ids, once their pods are on nodes.
        """
        ...

    def request(self, spec: SandboxSpec) -> Amounts:
        """What a sandbox requests of its node, with all that the platform adds. Cost: no call."""
        ...

    async def image(self, name: str) -> ImageState:
        """Where an image is, as far as that is known without pulling it. Cost: a few calls.

        Raises:
            Problem: image_not_found or unsupported, when it is certain that no sandbox can start from it.
        """
        ...

    async def digest(self, name: str) -> str:
        """The digest by which ``start`` takes an image that is on the machine already; no registry is asked.

        Empty: it is not there, or every node has images of its own.
        """
        ...

    def architectures(self) -> frozenset[str]:
        """Those of the machines that sandboxes may run on, as images name them; empty: not known. Cost: no call."""
        ...

    def lazily(self, spec: SandboxSpec) -> bool:
        """Whether a sandbox of it would read its image while its node fetches that. Cost: no call."""
        ...

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int]) -> Sequence[str]:
        """The nodes with room for a sandbox that have all of its image already; none: none has, or it is not known.

        Args:
            spec: what it is to be, with the image as nodes pull it.
            layers: of that image, with their bytes; empty: not known.

        Cost: no call; a look at each node.
        """
        ...

    def kept_off(self, spec: SandboxSpec, *, lazily: bool) -> frozenset[str]:
        """The nodes that a sandbox may not come to in spite of their labels. Cost: no call.

        Args:
            spec: what the create requested.
            lazily: it reads its image while its node fetches that, which these nodes cannot do now.
        """
        ...

    def lazy_trouble(self) -> str:
        """Why some nodes do not mount images now that they could mount lazily; empty: they do. Cost: no call."""
        ...

    def broken(self, digest: str) -> str:
        """Why a sandbox could not read files of a lazily mounted image; empty: none is known. Cost: no call.

        Args:
            digest: by which nodes have it.
        """
        ...

    def check_record(self) -> None:
        """Checks that this cluster tells which files of its image a sandbox opens. Cost: no call.

        Raises:
            Problem: unsupported; it names what would offer it.
        """
        ...

    async def opened(self, sandbox_id: str, during: Callable[[], Awaitable[None]]) -> OpenedFiles:
        """Which files of its image a sandbox opens until something is over; those that it has open are told first.

        Args:
            sandbox_id: reads its image while its node fetches that.
            during: is called once it has begun; what it raises is raised.

        Raises:
            Problem: unsupported: not offered here, or by its node; capacity_unavailable: its node records others;
                sandbox_lost: it does not run; upstream_timeout: its node's parts do not answer.
        """
        ...

    async def images(self) -> Sequence[NodeImage]:
        """The images of all owners on the nodes that sandboxes may run on. Cost: a call for each node.

        Raises:
            Problem: unsupported: this cluster cannot tell; the detail ``value`` names the setting that offers it.
        """
        ...

    async def node_stores(self) -> Sequence[NodeStore]:
        """The images of each node that can remove some; none where nothing is ever removed. Cost: two calls a node.

        A node that does not answer is left out.
        """
        ...

    async def remove_image(self, image: NodeImage) -> bool:
        """Removes from its node an image that was brought there for sandboxes; False: it was gone.

        Raises:
            Problem: conflict: a container uses it, or somebody else has brought it; upstream_timeout.
        """
        ...

    def check_prefetch(self) -> None:
        """Checks that this cluster pulls images ahead at all. Cost: no call.

        Raises:
            Problem: unsupported; it names what would offer it.
        """
        ...

    def prefetch(
        self, name: str, nodes: int | None = None, layers: Mapping[str, int] = NO_LAYERS
    ) -> AsyncGenerator[PrefetchProgress, None]:
        """Pulls an image to nodes that sandboxes may run on; ends when each is done, or has failed.

        Equal calls join one pull on each node, and a node pulls a bounded number at once. A caller that leaves early
        closes the generator; a pull may go on.

        Args:
            name: what ``start`` would be given.
            nodes: on how many it is to be: those that have it count, then those that have to pull least; starts prefer
                the same ones. None: on all.
            layers: of the image, as ``Boot.layers``.

        Raises:
            Problem: before the first progress: unsupported, image_not_found; failures of a node are progress.
        """
        ...

    @property
    def commits(self) -> str:
        """The registry and folder below which ``commit`` puts images; empty: it is not offered here.

        The next part of a name is its owner's (``controlplane.images.commits``): the caller of ``start`` and ``commit``
        lets an owner have nothing of another one's, by name. So a cluster starts what is there by that very name only,
        and not, for example, by its digest under another name.
        """
        ...

    async def commit(self, sandbox_id: str, target: str, max_bytes: int, *, squash: bool = False) -> Committed:
        """Makes an image of a running sandbox: its own one, and a layer of what its file system has beyond that.

        The image has the configuration of the sandbox's own one, and nothing of the platform. The sandbox's processes
        stand still meanwhile. Either the image is there, or nothing: a call that fails or is cancelled leaves none.

        Args:
            sandbox_id: which one.
            target: below ``commits``, with a tag; an image that has this name loses it.
            max_bytes: the most that the layer may have.
            squash: the top layer of the sandbox's own image is not below the new one, but a part of it: the new image
                has as many layers as the sandbox's, and nothing of what was changed in between.

        Raises:
            Problem: unsupported: not offered here; payload_too_large: it is over ``max_bytes``; capacity_unavailable:
                no room for it; conflict: it is being committed already; sandbox_lost: it does not run.
        """
        ...

    async def committed_digest(self, name: str) -> str:
        """The digest of the image that was committed by a name with a tag; empty: there is none. Cost: a call.

        Raises:
            Problem: unsupported: not offered here; those of a cluster that does not answer.
        """
        ...

    async def committed_images(self, folder: str) -> Sequence[CommittedImage]:
        """The images that were committed below ``folder``: ``commits`` and an owner's part. Cost: a call, or one each.

        Raises:
            Problem: unsupported: not offered here; those of a cluster that does not answer.
        """
        ...

    async def expired_checkpoints(self, before_ms: int) -> Sequence[CommittedImage]:
        """The checkpoints of all owners whose time was over at a moment; what they are built on is not told.

        Cost: nothing for those whose time is not over, but for the names of all; it is asked once a minute.

        Args:
            before_ms: the moment (Unix ms).

        Raises:
            Problem: unsupported: not offered here; those of a cluster that does not answer.
        """
        ...

    async def remove_committed(self, image: CommittedImage) -> None:
        """Removes an image that was committed, with all its names; success if it is gone already.

        Raises:
            Problem: conflict: something runs from it; those of a cluster that does not answer.
        """
        ...

    @property
    def names(self) -> "Names | None":
        """The names of sandboxes in DNS, which one replica at a time keeps up to date; None: they have none."""
        ...

    @property
    def annotates_behind(self) -> bool:
        """Whether facts may be written in the background after a create's answer, since a write is a network call."""
        ...

    @property
    def own_ports(self) -> frozenset[int]:
        """Ports of a sandbox on which its sidecar listens, so that nobody reaches them as the sandbox's."""
        ...

    @property
    def stops_at_once(self) -> int:
        """How many concurrent stops it allows; the control plane makes further ones wait."""
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

    def node_of(self, sandbox_id: str) -> SandboxNode | None:
        """The node of a sandbox, by the last event; None: not known. Cost: no call."""
        ...

    async def cpu_us(self, sandbox_id: str) -> int | None:
        """The time on processors of a sandbox that runs, by its node's word; None: nobody is there to say it.

        Raises:
            Problem: the one who could does not answer.
        """
        ...

    def pushed(self, sandbox_id: str, address: str) -> None:
        """Takes note of the address that a readiness push has named; a sandbox with another one is reported dead."""
        ...

    async def annotate(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        """Stores facts with a sandbox; ``list`` returns them, also after a restart of the control plane."""
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


class Names(Protocol):
    """Keeps the names of sandboxes in DNS up to date."""

    async def turn(self) -> None:
        """Writes what has changed since the last turn.

        Raises:
            Problem: the cluster does not answer, or refuses.
        """
        ...


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
