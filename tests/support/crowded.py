"""Nodes that several replicas share, each with a view of its own, and a scheduler that looks again at what is Pending.

What a replica sees of the nodes comes by a watch, so late; the scheduler alone knows what is there. It takes the oldest
pod first, whoever's it is: it knows neither pools nor owners.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass

from controlplane.capacity import Amounts, NodeRoom, Room
from controlplane.capacity.amounts import fits, minus
from controlplane.model import SandboxSpec
from tests.support.fake_cluster import FakeCluster

ENOUGH = 1 << 50
WORDS = "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."


@dataclass
class Pod:
    """A pod of a sandbox; ``node`` is empty while it is Pending."""

    request: Amounts
    selector: Mapping[str, str]
    maker: "View"
    node: str = ""


class Crowd:
    """The nodes, and what the scheduler does.

    Args:
        watch_s: after that a replica sees what has changed.
        retry_s: so long after a pod is gone the scheduler looks again at what is Pending.
        millicores: of each node, by its name; it is labelled ``node`` with that.
    """

    def __init__(self, *, watch_s: float = 0.05, retry_s: float = 0.1, **millicores: int) -> None:
        self.watch_s, self.retry_s = watch_s, retry_s
        nodes = {name: (cpu, ENOUGH, ENOUGH, 0, ENOUGH) for name, cpu in millicores.items()}
        self.nodes = {name: NodeRoom(name, amounts, {"node": name}) for name, amounts in nodes.items()}
        self.pods: dict[str, Pod] = {}
        self.views: list[View] = []
        self.most_pending = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def settle(self) -> None:
        """Waits until everybody has seen everything."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def view(self, *, stop_s: float = 2.0) -> "View":
        """The cluster as one more replica sees it."""
        self.views.append(view := View(self, stop_s))
        return view

    @property
    def pending(self) -> list[str]:
        """The sandboxes whose pods are on no node, oldest first."""
        return [name for name, pod in self.pods.items() if not pod.node]

    def made(self, sandbox_id: str, pod: Pod) -> None:
        """A replica has made a pod."""
        self.pods[sandbox_id] = pod
        self._schedule(sandbox_id)
        self.most_pending = max(self.most_pending, len(self.pending))

    def gone(self, sandbox_id: str) -> None:
        """A pod has left its node."""
        if self.pods.pop(sandbox_id, None) is not None:
            self.spawn(self._tell(lambda room: room.remove(sandbox_id)))
            self.spawn(self._again())

    def leave(self, sandbox_id: str) -> None:
        """A pod is deleted: no scheduler takes it any more."""
        if sandbox_id in self.pending:
            self.gone(sandbox_id)

    def spawn(self, what: Coroutine[None, None, None]) -> None:
        """Does it in the background."""
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _again(self) -> None:
        await asyncio.sleep(self.retry_s)
        for sandbox_id in self.pending:
            self._schedule(sandbox_id, again=True)

    def _schedule(self, sandbox_id: str, *, again: bool = False) -> None:
        pod = self.pods[sandbox_id]
        able = [name for name, free in self._free() if fits(free, pod.request) and self._takes(name, pod)]
        if not able:
            if not again:
                pod.maker.place(sandbox_id, "", WORDS)
            return
        pod.node = able[0]
        self.spawn(self._tell(lambda room: room.put(sandbox_id, able[0], pod.request)))
        pod.maker.place(sandbox_id, able[0])
        self.spawn(pod.maker.get_ready(sandbox_id, pod.maker.ready_s or 0.0))

    def _takes(self, name: str, pod: Pod) -> bool:
        return self.nodes[name].takes(pod.selector)

    def _free(self) -> Iterator[tuple[str, Amounts]]:
        for name, node in self.nodes.items():
            free = node.allocatable
            for pod in self.pods.values():
                free = minus(free, pod.request) if pod.node == name else free
            yield name, free

    async def _tell(self, change: Callable[[Room], None]) -> None:
        await asyncio.sleep(self.watch_s)
        for view in self.views:
            assert view.room is not None
            change(view.room)


class View(FakeCluster):
    """What one replica sees, and how it acts."""

    def __init__(self, crowd: Crowd, stop_s: float) -> None:
        room = Room()
        super().__init__(room=room, annotates_behind=True, stop_s=stop_s, ready_s=0.5, slots=8)
        self.crowd = crowd
        for node in crowd.nodes.values():
            room.set_node(node)
        room.replace(())
        if crowd.views:
            first = crowd.views[0]
            self.held, self.placed, self.stopped, self.started = first.held, first.placed, first.stopped, first.started

    def place(self, sandbox_id: str, node: str, why: str = "") -> None:
        """Tells all replicas."""
        super().place(sandbox_id, node, why)
        for view in self.crowd.views:
            for told in view._placements if view is not self else ():
                told.put_nowait(self.placed[sandbox_id])

    def _schedule(self, room: Room, sandbox_id: str, spec: SandboxSpec) -> bool:
        self.crowd.made(sandbox_id, Pod(self.request(spec), spec.node_selector, self))
        return False

    async def undo_start(self, sandbox_id: str) -> None:
        """See ``Sandboxes.undo_start``; what is on no node is gone at once."""
        self.crowd.leave(sandbox_id)
        await super().undo_start(sandbox_id)

    async def stop(self, sandbox_id: str) -> None:
        """See ``Sandboxes.stop``; the same."""
        self.crowd.leave(sandbox_id)
        await super().stop(sandbox_id)

    def _unschedule(self, sandbox_id: str) -> None:
        self.crowd.gone(sandbox_id)
