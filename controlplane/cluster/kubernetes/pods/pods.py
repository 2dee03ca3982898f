"""Mirrors the sandboxes' pods (trimmed copies), checks them at every change, and reports deaths and placements."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.api_server.client import Json
from controlplane.cluster.kubernetes.marks import ANNOTATION_ADDRESS, ANNOTATION_START_BY
from controlplane.cluster.kubernetes.pods.deaths import (
    asked_to_end,
    death,
    eviction,
    misplaced,
    sandbox_trouble,
    turned_away,
    undone,
    unexplained,
    unscheduled,
)
from controlplane.cluster.kubernetes.pods.listener import Listener
from controlplane.cluster.kubernetes.pods.mounts import is_hopeless, not_mounted
from controlplane.cluster.kubernetes.pods.trimmed import trimmed
from controlplane.cluster.protocol import Death, Placement

# Bound of the deaths that are kept for later listeners, and of the kubelet's messages about pods that are not known
# yet.
MAX_REMEMBERED: Final = 4096
# A start that fails for a known reason is reported this long before its deadline, so that the caller gets the reason
# and not just a timeout.
BEFORE_DEADLINE_S: Final = 0.3
# How long to wait for the reason of an end; a busy kubelet takes a second. Shorter than the time for which a gateway
# holds a broken call until the cause is known.
REASON_WITHIN_S: Final = 2.5
# The same if there must be a reason and no event has named it: a kubelet may take ten seconds. Gateways stop waiting
# earlier; their callers retry meanwhile.
SURE_REASON_WITHIN_S: Final = 11.0


class Pods:
    """A mirror of the pods of an installation.

    Args:
        trouble: returns why a node is considered lost; None if it is not.
        forged: called for each sandbox whose pod has another address than its readiness push named.
        see: called with name and address of each pod that has got one; with an empty one once it has ended.
    """

    def __init__(
        self,
        clock: Clock,
        trouble: Callable[[str], str | None],
        forged: Callable[[], None] = lambda: None,
        see: Callable[[str, str], None] = lambda _name, _address: None,
    ) -> None:
        self._see = see
        self._clock = clock
        self._forged = forged
        self._trouble = trouble
        self._pods: dict[str, Json] = {}
        self._dead: OrderedDict[str, Death] = OrderedDict()
        self._words: OrderedDict[str, str] = OrderedDict()  # the kubelet's messages about pod sandboxes, by pod
        self._not_mounted: OrderedDict[str, str] = OrderedDict()  # their messages about volumes, by pod
        self._pushed: OrderedDict[str, str] = OrderedDict()  # what readiness pushes have named, until it is compared
        self._deadlines: dict[str, asyncio.TimerHandle] = {}
        self._doubted: dict[str, asyncio.TimerHandle] = {}  # pods that have ended without a known reason
        self._stopping: dict[str, asyncio.Future[None]] = {}
        self._stops: Counter[str] = Counter()  # how many calls wait for the end of each of these
        self._listeners: set[Listener[Death]] = set()
        self._placements: set[Listener[Placement]] = set()

    def __contains__(self, sandbox_id: str) -> bool:
        return sandbox_id in self._pods

    def on_lost_node(self, sandbox_id: str) -> bool:
        """Whether its node is lost, so that no kubelet can confirm its end."""
        name = _node(self._pods.get(sandbox_id) or {})
        return bool(name) and self._trouble(name) is not None

    def node_of(self, sandbox_id: str) -> str:
        """The node of a pod; empty: it is not scheduled, or there is no such pod."""
        return _node(self._pods.get(sandbox_id) or {})

    def on_node(self, node: str) -> Sequence[str]:
        """The pods on a node that have not died, by name."""
        return [name for name, pod in self._pods.items() if _node(pod) == node and name not in self._dead]

    def is_unconfirmed(self, sandbox_id: str) -> bool:
        """Whether it has ended and the watch still waits for the reason."""
        return sandbox_id in self._doubted

    async def deaths(self) -> AsyncIterator[Death]:
        """See ``Sandboxes.watch``: first all known deaths, then new ones."""
        listener = Listener(list(self._dead.values()))
        self._listeners.add(listener)
        try:
            async for one in listener.each():
                yield one
        finally:
            self._listeners.discard(listener)

    def placement(self, sandbox_id: str) -> Placement | None:
        """See ``Placements.placement``."""
        pod = self._pods.get(sandbox_id) or {}
        if node := _node(pod):
            why = turned_away(pod)
            return Placement(sandbox_id, node) if why is None else Placement(sandbox_id, "", why, turned_away_by=node)
        why = unscheduled(pod)
        return None if why is None else Placement(sandbox_id, "", why)

    async def placements(self) -> AsyncIterator[Placement]:
        """See ``Placements.placements``: first all known placements, then changes."""
        known = (self.placement(name) for name in self._pods)
        listener = Listener([one for one in known if one is not None], newest=True)
        self._placements.add(listener)
        try:
            async for one in listener.each():
                yield one
        finally:
            self._placements.discard(listener)

    def pushed(self, sandbox_id: str, address: str) -> None:
        """Takes note of the address that a readiness push has named; compares it once the pod has one."""
        self._pushed[sandbox_id] = address
        while len(self._pushed) > max(MAX_REMEMBERED, len(self._pods)):
            self._pushed.popitem(last=False)
        if (pod := self._pods.get(sandbox_id)) is not None:
            self._compare(sandbox_id, pod)
            self._judge(sandbox_id)

    @contextmanager
    def stopping(self, sandbox_id: str) -> Iterator[asyncio.Future[None]]:
        """Announces a stop by the control plane, until the end of the block: it has finished or was given up.

        Yields:
            A future that is done with the pod. All calls for the same pod share it, until the last one is over.
        """
        if sandbox_id not in self._stopping:
            self._stopping[sandbox_id] = asyncio.get_running_loop().create_future()
        self._stops[sandbox_id] += 1
        try:
            yield self._stopping[sandbox_id]
        finally:
            self._stops[sandbox_id] -= 1
            if not self._stops[sandbox_id]:
                del self._stops[sandbox_id], self._stopping[sandbox_id]

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        seen = {str(one["metadata"]["name"]) for one in objects}
        for name in [name for name in self._pods if name not in seen]:
            self.remove(self._pods[name])
        for one in objects:
            self.put(one)

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        name = str(thing["metadata"]["name"])
        before = self.placement(name)
        self._pods[name] = pod = trimmed(thing)
        self._compare(name, pod)
        self._see(name, _address(pod))
        after = self.placement(name)
        if after is not None and after != before:
            for listener in self._placements:
                listener.notify(after)
        self._judge(name)

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        name = str(thing["metadata"]["name"])
        self._pods.pop(name, None)
        self._forget_timers(name)
        self._words.pop(name, None)
        self._not_mounted.pop(name, None)
        self._pushed.pop(name, None)
        self._see(name, "")
        if name not in self._stopping and name not in self._dead and not undone(thing):
            judged = death(trimmed(thing), self._trouble(_node(thing)))
            self._report(judged or Death(name, "sandbox_lost", "its pod was removed from outside rollbox"))
        if (gone := self._stopping.get(name)) is not None and not gone.done():
            gone.set_result(None)
        if name in self._dead:
            self._dead.move_to_end(name)
        while len(self._dead) > max(MAX_REMEMBERED, len(self._pods)):
            self._dead.popitem(last=False)

    def lost(self, node: str) -> None:
        """Checks all pods on a node that is lost or deleted."""
        for name in [name for name, pod in self._pods.items() if _node(pod) == node]:
            self._judge(name)

    def no_sandbox(self, name: str, message: str) -> None:
        """Takes the kubelet's message about a pod sandbox that it could not create; the kubelet retries."""
        self._hear(self._words, name, message)

    def not_mounted(self, name: str, message: str) -> None:
        """Takes the kubelet's message about a volume that it could not mount; the kubelet retries."""
        self._hear(self._not_mounted, name, message)

    def evicted(self, name: str, message: str) -> None:
        """Takes the kubelet's message about an eviction; the pod object has it only up to ten seconds later."""
        if name in self._pods and name not in self._dead and name not in self._stopping:
            self._report(Death(name, *eviction(message)))

    def close(self) -> None:
        """Cancels all timers."""
        for name in (*self._deadlines, *self._doubted):
            self._forget_timers(name)

    def _hear(self, told: OrderedDict[str, str], name: str, message: str) -> None:
        told[name] = message
        while len(told) > MAX_REMEMBERED:
            told.popitem(last=False)
        if name in self._pods:
            self._judge(name)

    def _unavailable(self, name: str) -> str:
        """Why a pod that does not run yet cannot have its data sets, as its kubelet has said; empty: it has not."""
        pod, message = self._pods[name], self._not_mounted.get(name, "")
        return not_mounted(pod, message) if message and not _running(pod) else ""

    def _compare(self, name: str, pod: Json) -> None:
        """Puts what its push has named into the copy of a pod that has an address, where ``misplaced`` reads it."""
        if pod["status"].get("podIP") and (address := self._pushed.pop(name, "")):
            pod["metadata"]["annotations"].setdefault(ANNOTATION_ADDRESS, address)

    def _judge(self, name: str) -> None:
        if name in self._dead or name in self._stopping:
            return
        pod = self._pods[name]
        trouble = self._trouble(_node(pod))
        judged = death(pod, trouble)
        if judged is not None and trouble is None and unexplained(pod):
            self._mark_unconfirmed(name)
            return
        words = self._words.get(name)
        if judged is None and words is not None and (verdict := sandbox_trouble(words)) is not None:
            judged = Death(name, *verdict)
        unavailable = self._unavailable(name)
        if judged is None and unavailable and is_hopeless(unavailable):
            judged = Death(name, "dataset_unavailable", unavailable)
        if judged is not None:
            if misplaced(pod) is not None:
                self._forged()
            self._report(judged)
        elif words is not None or unavailable or unscheduled(pod) is not None or turned_away(pod) is not None:
            self._set_deadline(name, pod)
        else:
            self._forget_deadline(name)

    def _mark_unconfirmed(self, name: str) -> None:
        """Reports a pod's end a little later, unless a reason comes first."""
        self._forget_deadline(name)
        if name not in self._doubted:
            within_s = SURE_REASON_WITHIN_S if asked_to_end(self._pods[name]) else REASON_WITHIN_S
            self._doubted[name] = asyncio.get_running_loop().call_later(within_s, self._believe, name)

    def _believe(self, name: str) -> None:
        self._doubted.pop(name, None)
        if name in self._stopping or name in self._dead or (pod := self._pods.get(name)) is None:
            return
        if (judged := death(pod, self._trouble(_node(pod)))) is not None:
            self._report(judged)

    def _report(self, one: Death) -> None:
        self._forget_timers(one.sandbox_id)
        self._dead[one.sandbox_id] = one
        for listener in self._listeners:
            listener.notify(one)

    def _set_deadline(self, name: str, pod: Json) -> None:
        start_by = str((pod["metadata"].get("annotations") or {}).get(ANNOTATION_START_BY) or "")
        if name in self._deadlines or not start_by.isdigit():
            return
        left_s = (int(start_by) - self._clock.now_ms()) / 1000 - BEFORE_DEADLINE_S
        self._deadlines[name] = asyncio.get_running_loop().call_later(max(0.0, left_s), self._overdue, name)

    def _forget_deadline(self, name: str) -> None:
        if (timer := self._deadlines.pop(name, None)) is not None:
            timer.cancel()

    def _forget_timers(self, name: str) -> None:
        self._forget_deadline(name)
        if (timer := self._doubted.pop(name, None)) is not None:
            timer.cancel()

    def _overdue(self, name: str) -> None:
        pod = self._pods.get(name)
        if pod is None or name in self._dead or name in self._stopping:
            return
        if (why := turned_away(pod)) is not None:
            self._report(Death(name, "capacity_unavailable", why))
        elif (why := unscheduled(pod)) is not None:
            self._report(Death(name, "capacity_unavailable", f"no node takes it: {why}"))
        elif why := self._unavailable(name):
            self._report(Death(name, "dataset_unavailable", why))
        elif not _running(pod):
            detail = f"the node could not make its pod sandbox: {self._words.get(name, '')[:400]}"
            self._report(Death(name, "start_timeout", detail))


class Events:
    """A mirror of Kubernetes Events whose content is not in the pod objects, or only later.

    Args:
        heard: called with the pod's name and the event's message.
    """

    def __init__(self, on_event: Callable[[str, str], None]) -> None:
        self._on_event = on_event

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        for one in objects:
            self.put(one)

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        about = thing.get("involvedObject") or {}
        self._on_event(str(about.get("name") or ""), str(thing.get("message") or ""))

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``: does nothing, since what an expired event has reported stays valid."""


def _running(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _address(pod: Json) -> str:
    """Where it is, until it ends."""
    over = pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ("Succeeded", "Failed")
    return "" if over else str(pod["status"].get("podIP") or "")


def _node(pod: dict[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
