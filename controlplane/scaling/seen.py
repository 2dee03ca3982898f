"""What a turn of the scaler sees (``SeenNode``, ``Group``), does (``Step``) and tells (``PoolReport``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.capacity import Amounts
from controlplane.scaling.kinds import Kind
from controlplane.scaling.node_pool import NodePool


@dataclass(frozen=True, slots=True)
class Machine:
    """What a provider has of a node pool.

    Attributes:
        id: what the provider calls it.
        node: its name; empty: it has not joined yet.
        failed: why it never will; empty: it may.
    """

    id: str
    node: str = ""
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A node pool as its provider tells it.

    Attributes:
        target: for how many nodes the provider was asked.
        machines: those that there are, made or being made.
        version: sent with a change, so that one that was decided on older facts is refused.
        names: whether it removes machines by name; else it removes by itself what nothing holds (placeholders).
    """

    target: int
    machines: Sequence[Machine] = ()
    version: str = ""
    names: bool = True


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node that sandboxes may run on.

    Attributes:
        free: beside all pods, whatever is reserved.
        idle: its idle sandboxes: ready ones of pools that nobody has claimed.
        busy: how many sandboxes of owners are there, and starting ones.
        ending: how many have ended and are still there.
        ready: whether it is Ready.
        open: whether it takes starts.
        leaving: the scaler has cordoned it.
        opens: whether it takes starts once it is not cordoned: it is Ready, and nothing says that it will go.
    """

    name: str
    free: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    idle: Mapping[Kind, int] = field(default_factory=dict)
    busy: int = 0
    ending: int = 0
    ready: bool = True
    open: bool = True
    leaving: bool = False
    opens: bool = True

    @property
    def idles(self) -> int:
        """How many idle ones."""
        return sum(self.idle.values())

    @property
    def empty(self) -> bool:
        """Whether no sandbox is there."""
        return not self.busy and not self.idle and not self.ending


@dataclass(frozen=True, slots=True)
class Ask:
    """Sets for how many nodes the provider is asked. Fewer than before only where these were never begun.

    Attributes:
        held: of these, how many hold a sandbox; for providers that remove by themselves what nothing holds.
    """

    pool: str
    target: int
    why: str
    held: int = 0


@dataclass(frozen=True, slots=True)
class Cordon:
    """No start comes to the node any more."""

    pool: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Starts may come to the node again."""

    pool: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Empty:
    """Ends the idle sandboxes of a cordoned node."""

    pool: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Has the provider remove machines; on the nodes of these no sandbox is."""

    pool: str
    machines: tuple[Machine, ...]
    why: str


Step = Ask | Cordon | Uncordon | Empty | Remove


@dataclass(frozen=True, slots=True)
class PoolReport:
    """What is told of a node pool.

    Attributes:
        ready: nodes that take starts.
        coming: nodes that were asked for and are not Ready.
        leaving: nodes that are being emptied.
        target: for how many its provider was asked before this turn.
        wanted: how many it is to have after this turn's steps.
        why: a sentence; empty: nothing is to be said.
        paused_until_ms: until when no node of it is asked for; 0: it does not pause.
    """

    pool: NodePool
    ready: int
    coming: int
    leaving: int
    target: int
    wanted: int
    why: str = ""
    paused_until_ms: int = 0
