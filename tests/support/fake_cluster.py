"""A cluster, its sidecars and its gateways in memory, with faults on demand.

They pass the suites of the real ones: `tests/contract/cluster_suite.py` and `sidecars_suite.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.capacity import Amounts, NodeRoom, Room
from controlplane.capacity.amounts import fits, plus
from controlplane.cluster import (
    Boot,
    Command,
    Death,
    Description,
    Health,
    ImageState,
    Observed,
    Placement,
    Pulling,
    SandboxNode,
    SandboxUsage,
    Started,
)
from controlplane.cluster.devices import refuse_gpu
from controlplane.egress import EgressAttempt
from controlplane.errors import Problem
from controlplane.images import ImageConfig
from controlplane.lifecycle import Push
from controlplane.model import SandboxSpec
from tests.support.fake_commits import FakeCommits
from tests.support.fake_drains import FakeDrains
from tests.support.fake_mounts import FakeMounts
from tests.support.fake_node_images import FakeLazyNodes, FakeNodeImages, FakeNodeStores

Pusher = Callable[[str, Push], Awaitable[None]]


def room_for(sandboxes: int, **nodes: int) -> Room:
    """Nodes (one, `n1`, if none are named) that take so many sandboxes each, however large these are."""
    room, any_amount = Room(), 1 << 50
    for name, places in (nodes or {"n1": sandboxes}).items():
        room.set_node(NodeRoom(name, (any_amount, any_amount, any_amount, any_amount, places)))
    room.replace(())
    return room


@dataclass
class Held:
    """What the cluster holds of one sandbox."""

    spec: SandboxSpec
    boot: Boot
    facts: dict[str, str] = field(default_factory=dict)
    death: Death | None = None


@dataclass
class FakeCluster:
    """Starts take `start_s`, stops `stop_s`, a push comes `ready_s` after the start (None: never by itself)."""

    start_s: float = 0.1
    stop_s: float = 0.05
    ready_s: float | None = 0.02
    next_error: Problem | None = None
    next_stop_error: Problem | None = None
    next_failure: Problem | None = None
    next_annotate_error: Problem | None = None
    annotates_behind: bool = False
    names: None = None
    slots: int = 1024
    starts_per_node: int = 0
    # The nodes that have an image, by its name.
    images_on: dict[str, Sequence[str]] = field(default_factory=dict)
    placed: dict[str, Placement] = field(default_factory=dict)
    room: Room | None = None  # `room_for` makes one; what starts is put on one of its nodes
    digests: dict[str, str] = field(default_factory=dict)  # of images that are on the machine
    configs: dict[str, ImageConfig] = field(default_factory=dict)  # likewise
    image_state: ImageState = "here"
    on_nodes: set[str] = field(default_factory=set)  # whatever `image_state` says
    missing_images: set[str] = field(default_factory=set)
    stops_at_once: int = 8
    own_ports: frozenset[int] = frozenset({7070})
    isolation: str = ""
    held: dict[str, Held] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)  # what pushes have named
    annotated: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    most_at_once: int = 0
    most_stops_at_once: int = 0
    push: Pusher | None = None
    nodes: dict[str, str] = field(default_factory=dict)  # by sandbox; the others are on n1
    not_ready: set[str] = field(default_factory=set)
    commits: FakeCommits = field(default_factory=FakeCommits)
    mounts: FakeMounts = field(default_factory=FakeMounts)
    builds: None = None
    lazy: FakeLazyNodes = field(default_factory=FakeLazyNodes)
    turning_away: tuple[str, ...] = ()  # nodes that refuse what the scheduler places there
    undone: list[str] = field(default_factory=list)
    pulls: dict[str, Pulling] = field(default_factory=dict)  # what nodes pull, by sandbox; by the empty id: for all
    hangs: str = ""  # beginning of the names of images from which no sandbox gets ready
    cpu: dict[str, int] = field(default_factory=dict)  # what the nodes of some sandboxes count, in microseconds
    cpu_problem: Problem | None = None
    arches: frozenset[str] = frozenset({"amd64"})

    def __post_init__(self) -> None:
        self._starting = self._stopping = 0
        self.node_images = FakeNodeImages(self)
        self.node_stores = FakeNodeStores()
        self.commits.runs = self._runs
        self.node_drains = FakeDrains(self._on_node, "n1", *({*self.nodes.values()} - {"n1"}))
        self._deaths: asyncio.Queue[Death] = asyncio.Queue()
        self._placements: list[asyncio.Queue[Placement]] = []
        self._pushes: set[asyncio.Task[None]] = set()

    def describe(self) -> Description:
        place = self.commits.place if self.commits else ""
        return Description("engine", "fake", "1", "runc", "shares the kernel", "none", 512, commits=place)

    def check(self, spec: SandboxSpec) -> None:
        refuse_gpu(spec, "this is no real cluster")
        if spec.cpu_millicores.limit > 64_000:
            raise Problem("unsupported", "cpu_millicores.limit is more than 64000", option="cpu_millicores.limit")

    def check_kernel(self, kernel: str) -> None:
        if self.isolation not in kernel:
            raise Problem("isolation_missing", f"kernel {kernel!r} is not {self.isolation}")

    def starts_at_once(self) -> int:
        return self.slots

    def placement(self, sandbox_id: str) -> Placement | None:
        return self.placed.get(sandbox_id)

    async def placements(self) -> AsyncIterator[Placement]:
        told: asyncio.Queue[Placement] = asyncio.Queue()
        self._placements.append(told)
        while True:
            yield await told.get()

    def place(self, sandbox_id: str, node: str, why: str = "") -> None:
        """Puts a sandbox on a node; without one, says that none takes it."""
        self.placed[sandbox_id] = placement = Placement(sandbox_id, node, why)
        for told in self._placements:
            told.put_nowait(placement)

    def request(self, spec: SandboxSpec) -> Amounts:
        return spec.cpu_millicores.request, spec.memory_bytes.request, 0, spec.gpu, 1

    async def image(self, name: str) -> ImageState:
        if name in self.missing_images:
            raise Problem("image_not_found", f"{name}: manifest unknown", image=name)
        return "here" if name in self.on_nodes else self.image_state

    async def digest(self, name: str) -> str:
        return self.digests.get(name, "")

    async def config(self, name: str) -> ImageConfig | None:
        return self.configs.get(name)

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int]) -> Sequence[str]:
        del layers
        return self.images_on.get(spec.image, ())

    def _runs(self, sandbox_id: str) -> SandboxSpec | None:
        """What a sandbox that runs was started from; None: it does not run."""
        held = self.held.get(sandbox_id)
        return None if held is None or held.death is not None else held.spec

    def architectures(self) -> frozenset[str]:
        return self.arches

    async def start(self, sandbox_id: str, spec: SandboxSpec, boot: Boot) -> Started:
        self.started.append(sandbox_id)
        self._starting += 1
        self.most_at_once = max(self.most_at_once, self._starting)
        try:
            await asyncio.sleep(self.start_s)
        finally:
            self._starting -= 1
        error, self.next_error = self.next_error, None
        if error is not None:
            raise error
        if sandbox_id in self.held:
            return self._started(sandbox_id)
        self.held[sandbox_id] = Held(spec, boot)
        if self.room is not None and not self._schedule(self.room, sandbox_id, spec):
            return self._started(sandbox_id)
        if self.ready_s is not None and not (self.hangs and spec.image.startswith(self.hangs)):
            task = asyncio.create_task(self.get_ready(sandbox_id, self.ready_s))
            self._pushes.add(task)
            task.add_done_callback(self._pushes.discard)
        return self._started(sandbox_id)

    def _schedule(self, room: Room, sandbox_id: str, spec: SandboxSpec) -> bool:
        """What a scheduler does: by the pods that are there alone."""
        request = self.request(spec)
        off = self.lazy.kept_off(spec) if self.lazy.takes(spec) else frozenset[str]()
        avoid = self.held[sandbox_id].boot.avoid
        for one in sorted(room.free(), key=lambda one: one.node.name in avoid):
            if one.node.takes(spec.node_selector, off) and fits(plus(one.free, one.reserved), request):
                if one.node.name in self.turning_away:
                    self.turn_away(sandbox_id, one.node.name)
                    return False
                room.put(sandbox_id, one.node.name, request)
                self.place(sandbox_id, one.node.name)
                return True
        self.place(sandbox_id, "", "0/1 nodes are available: 1 Insufficient cpu.")
        return False

    def turn_away(self, sandbox_id: str, node: str) -> None:
        """What a kubelet does that has no room for what the scheduler has placed there."""
        self.placed[sandbox_id] = away = Placement(sandbox_id, "", "OutOfcpu", turned_away_by=node)
        for told in self._placements:
            told.put_nowait(away)

    def reschedule(self, sandbox_id: str) -> None:
        """Looks again at a sandbox that was placed nowhere."""
        assert self.room is not None
        if self._schedule(self.room, sandbox_id, self.held[sandbox_id].spec):
            task = asyncio.create_task(self.get_ready(sandbox_id, self.ready_s or 0.0))
            self._pushes.add(task)
            task.add_done_callback(self._pushes.discard)

    def _unschedule(self, sandbox_id: str) -> None:
        if self.room is not None:
            self.room.remove(sandbox_id)

    async def undo_start(self, sandbox_id: str) -> None:
        await asyncio.sleep(self.stop_s)
        self.undone.append(sandbox_id)
        self.held.pop(sandbox_id, None)
        self._unschedule(sandbox_id)

    async def stop(self, sandbox_id: str) -> None:
        self._stopping += 1
        self.most_stops_at_once = max(self.most_stops_at_once, self._stopping)
        try:
            await asyncio.sleep(self.stop_s)
        finally:
            self._stopping -= 1
        error, self.next_stop_error = self.next_stop_error, None
        if error is not None:
            raise error
        self.stopped.append(sandbox_id)
        self.held.pop(sandbox_id, None)
        self._unschedule(sandbox_id)

    def _on_node(self, node: str) -> Sequence[str]:
        return [name for name, one in self.held.items() if one.death is None and self.nodes.get(name, "n1") == node]

    async def pulling(self, sandbox_id: str) -> Pulling | None:
        return self.pulls.get(sandbox_id) or self.pulls.get("")

    def node_of(self, sandbox_id: str) -> SandboxNode | None:
        placed = self.placed.get(sandbox_id) if self.room is not None else None
        node = self.nodes.get(sandbox_id, "n1" if placed is None else placed.node)
        return SandboxNode(node, node not in self.not_ready) if node and sandbox_id in self.held else None

    async def cpu_us(self, sandbox_id: str) -> int | None:
        if (problem := self.cpu_problem) is not None:
            raise problem
        return self.cpu.get(sandbox_id)

    def pushed(self, sandbox_id: str, address: str) -> None:
        self.addresses[sandbox_id] = address

    async def annotate(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        error, self.next_annotate_error = self.next_annotate_error, None
        if error is not None:
            raise error
        self.annotated.append(sandbox_id)
        if sandbox_id in self.held:
            self.held[sandbox_id].facts.update(facts)

    async def list(self) -> Sequence[Observed]:
        return [
            Observed(sandbox_id, one.boot.record, dict(one.facts), self._address(sandbox_id), one.death)
            for sandbox_id, one in self.held.items()
        ]

    async def watch(self) -> AsyncIterator[Death]:
        while True:
            yield await self._deaths.get()

    def kill(self, death: Death) -> None:
        """Lets a sandbox die from outside."""
        if death.sandbox_id in self.held:
            self.held[death.sandbox_id].death = death
        self._deaths.put_nowait(death)

    async def push_now(self, sandbox_id: str, *, token: str | None = None) -> None:
        """What the sidecar of this sandbox does when it is ready."""
        if self.push is None:
            raise RuntimeError("nobody takes pushes")
        failure, self.next_failure = self.next_failure, None
        address = f"http://10.0.0.1:7070/{sandbox_id}" if self.annotates_behind else ""
        push = Push(sandbox_id, address, kernel="Linux version 6.1 fake", failure=failure)
        await self.push(token or self.held[sandbox_id].boot.ready_token, push)

    def _address(self, sandbox_id: str) -> str:
        return f"http://10.0.0.1:7070/{sandbox_id}" if self.annotates_behind else f"unix:/fake/{sandbox_id}"

    def _started(self, sandbox_id: str) -> Started:
        return Started(None if self.annotates_behind else f"unix:/fake/{sandbox_id}")

    async def settle(self) -> None:
        """Waits for pushes under way."""
        if self._pushes:
            await asyncio.wait(self._pushes)

    async def get_ready(self, sandbox_id: str, after_s: float = 0) -> None:
        """What the sidecar of this sandbox does when it is ready: pushes until it is heard."""
        await asyncio.sleep(after_s)
        while sandbox_id in self.held:
            try:
                await self.push_now(sandbox_id)
            except Problem as problem:
                if problem.code != "upstream_timeout":
                    return  # too late: it was deleted meanwhile
                await asyncio.sleep(0.1)
            else:
                return


@dataclass
class FakeSidecars:
    """Dead ones answer nothing."""

    dead: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    used_s: dict[str, float] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    knows_quiet: bool = True
    healths: int = 0
    fails: str = ""  # why commands fail that read an image
    tries: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)  # commands of recordings
    run_s: float = 0.0
    run_fails: str | Problem = ""
    used: dict[str, SandboxUsage] = field(default_factory=dict)
    ran_there: dict[str, Sequence[Command]] = field(default_factory=dict)
    refused_there: dict[str, Sequence[EgressAttempt]] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)

    def use(self, address: str) -> None:
        """A call of a user is over, whoever's gateway it came through (the loop's time)."""
        self.used_s[address] = asyncio.get_running_loop().time()

    def _check(self, address: str, token: str) -> None:
        assert token
        if address in self.dead:
            raise Problem("sandbox_unreachable", f"{address} does not answer")

    async def usage(self, address: str, token: str) -> SandboxUsage:
        self._check(address, token)
        self.looks.append(address)
        return self.used.get(address, SandboxUsage(1_000, 64 << 20, 512 << 20, 1 << 20, 0, 3, 512, True))

    async def commands(self, address: str, token: str) -> Sequence[Command]:
        self._check(address, token)
        self.looks.append(address)
        return self.ran_there.get(address, ())

    async def refused(self, address: str, token: str) -> Sequence[EgressAttempt]:
        self._check(address, token)
        return self.refused_there.get(address, ())

    async def ran(self, address: str, token: str, command: str, within_ms: int) -> str:
        self._check(address, token)
        self.runs.append(command)
        await asyncio.sleep(min(self.run_s, within_ms / 1000))
        if self.run_s > within_ms / 1000:
            raise Problem("exec_deadline", "the command was not over")
        if isinstance(self.run_fails, Problem):
            raise self.run_fails
        return self.run_fails

    async def tried(self, address: str, token: str, argv: Sequence[str]) -> str:
        self._check(address, token)
        self.tries.append(argv[0])
        return self.fails

    async def health(self, address: str, token: str) -> Health:
        self._check(address, token)
        self.healths += 1
        quiet_ms = round((asyncio.get_running_loop().time() - self.used_s.get(address, 0.0)) * 1000)
        return Health(
            address.rpartition("/")[2],
            "Linux",
            1,
            address in self.acknowledged,
            quiet_ms if self.knows_quiet else None,
            int(address in self.running),
        )


@dataclass
class FakeGateways:
    """Reaches what ``unreached`` does not name; away, it says nothing."""

    unreached: set[str] = field(default_factory=set)
    away: bool = False
    asked: list[str] = field(default_factory=list)

    async def reaches(self, sandbox_id: str, token: str) -> bool | None:
        assert token
        self.asked.append(sandbox_id)
        return None if self.away else sandbox_id not in self.unreached
