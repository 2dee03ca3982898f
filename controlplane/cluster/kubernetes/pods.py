"""The sandboxes' pods as they are now: small copies, judged at every change, and whoever waits for an end is told."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.client import Json
from controlplane.cluster.kubernetes.deaths import (
    asked_to_end,
    death,
    eviction,
    misplaced,
    sandbox_trouble,
    unexplained,
    unscheduled,
)
from controlplane.cluster.kubernetes.listener import Listener
from controlplane.cluster.kubernetes.podspec import ANNOTATION_START_BY
from controlplane.cluster.kubernetes.trimmed import trimmed
from controlplane.cluster.protocol import Death, Placement

# Those that went before anybody listened, and the kubelet's words about pods that are not here yet.
MAX_REMEMBERED: Final = 4096
# A reason beats the bare word that time is up, so it comes first.
BEFORE_DEADLINE_S: Final = 0.3
# How long an end waits for its reason: a busy kubelet's second. Less than gateways hold a broken call for the cause.
REASON_WITHIN_S: Final = 2.5
# The same where there must be one and no event has told it: a kubelet may take ten. Callers that gateways let go ask
# again meanwhile.
SURE_REASON_WITHIN_S: Final = 11.0


class Pods:
    """A mirror of the pods of an installation.

    Args:
        trouble: tells why a node is taken for lost.
        forged: told of each sandbox that is not where its readiness push said.
    """

    def __init__(
        self, clock: Clock, trouble: Callable[[str], str | None], forged: Callable[[], None] = lambda: None
    ) -> None:
        self._clock = clock
        self._forged = forged
        self._trouble = trouble
        self._pods: dict[str, Json] = {}
        self._dead: OrderedDict[str, Death] = OrderedDict()
        self._words: OrderedDict[str, str] = OrderedDict()  # the kubelet's, about pod sandboxes
        self._deadlines: dict[str, asyncio.TimerHandle] = {}
        self._doubted: dict[str, asyncio.TimerHandle] = {}  # ended, and nobody has said why yet
        self._stopping: dict[str, asyncio.Future[None]] = {}
        self._listeners: set[Listener[Death]] = set()
        self._placements: set[Listener[Placement]] = set()

    def __contains__(self, sandbox_id: str) -> bool:
        return sandbox_id in self._pods

    def on_lost_node(self, sandbox_id: str) -> bool:
        """Whether no kubelet can confirm its end."""
        name = _node(self._pods.get(sandbox_id) or {})
        return bool(name) and self._trouble(name) is not None

    def node_of(self, sandbox_id: str) -> str:
        """The node that a pod was given to; empty: none, or there is no such pod."""
        return _node(self._pods.get(sandbox_id) or {})

    def in_doubt(self, sandbox_id: str) -> bool:
        """Whether its end was seen and its reason is still waited for."""
        return sandbox_id in self._doubted

    async def deaths(self) -> AsyncIterator[Death]:
        """See ``Cluster.watch``: those that are dead, then each that dies."""
        listener = Listener(list(self._dead.values()))
        self._listeners.add(listener)
        try:
            async for one in listener.each():
                yield one
        finally:
            self._listeners.discard(listener)

    def placement(self, sandbox_id: str) -> Placement | None:
        """See ``Cluster.placement``."""
        pod = self._pods.get(sandbox_id) or {}
        if node := _node(pod):
            return Placement(sandbox_id, node)
        why = unscheduled(pod)
        return None if why is None else Placement(sandbox_id, "", why)

    async def placements(self) -> AsyncIterator[Placement]:
        """See ``Cluster.placements``: those that there are, then each that changes."""
        known = (self.placement(name) for name in self._pods)
        listener = Listener([one for one in known if one is not None], newest=True)
        self._placements.add(listener)
        try:
            async for one in listener.each():
                yield one
        finally:
            self._placements.discard(listener)

    def stopping(self, sandbox_id: str) -> asyncio.Future[None]:
        """Announces that we end it ourselves; done when the pod was seen to go. Those who ask share it."""
        if sandbox_id not in self._stopping:
            self._stopping[sandbox_id] = asyncio.get_running_loop().create_future()
        return self._stopping[sandbox_id]

    def stopped(self, sandbox_id: str) -> None:
        """Takes ``stopping`` back: it is over, or given up."""
        self._stopping.pop(sandbox_id, None)

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
        self._pods[name] = trimmed(thing)
        after = self.placement(name)
        if after is not None and after != before:
            for listener in self._placements:
                listener.tell(after)
        self._judge(name)

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        name = str(thing["metadata"]["name"])
        self._pods.pop(name, None)
        self._forget_timers(name)
        self._words.pop(name, None)
        if name not in self._stopping and name not in self._dead:
            judged = death(trimmed(thing), self._trouble(_node(thing)))
            self._tell(judged or Death(name, "sandbox_lost", "its pod was removed from outside rollbox"))
        if (gone := self._stopping.get(name)) is not None and not gone.done():
            gone.set_result(None)
        if name in self._dead:
            self._dead.move_to_end(name)
        while len(self._dead) > max(MAX_REMEMBERED, len(self._pods)):
            self._dead.popitem(last=False)

    def lost(self, node: str) -> None:
        """A node may have been lost: judges what is on it."""
        for name in [name for name, pod in self._pods.items() if _node(pod) == node]:
            self._judge(name)

    def no_sandbox(self, name: str, message: str) -> None:
        """The kubelet's words about a pod whose sandbox it could not make; it tries again."""
        self._words[name] = message
        while len(self._words) > MAX_REMEMBERED:
            self._words.popitem(last=False)
        if name in self._pods:
            self._judge(name)

    def evicted(self, name: str, message: str) -> None:
        """The kubelet's words about a pod that it evicts: in the pod itself they stand up to ten seconds later."""
        if name in self._pods and name not in self._dead and name not in self._stopping:
            self._tell(Death(name, *eviction(message)))

    def close(self) -> None:
        """Ends what still waits."""
        for name in (*self._deadlines, *self._doubted):
            self._forget_timers(name)

    def _judge(self, name: str) -> None:
        if name in self._dead or name in self._stopping:
            return
        pod = self._pods[name]
        trouble = self._trouble(_node(pod))
        judged = death(pod, trouble)
        if judged is not None and trouble is None and unexplained(pod):
            self._doubt(name)
            return
        words = self._words.get(name)
        if judged is None and words is not None and (verdict := sandbox_trouble(words)) is not None:
            judged = Death(name, *verdict)
        if judged is not None:
            if misplaced(pod) is not None:
                self._forged()
            self._tell(judged)
        elif words is not None or unscheduled(pod) is not None:
            self._set_deadline(name, pod)
        else:
            self._forget_deadline(name)

    def _doubt(self, name: str) -> None:
        """Its end is told a little later, unless a better reason comes first."""
        self._forget_deadline(name)
        if name not in self._doubted:
            within_s = SURE_REASON_WITHIN_S if asked_to_end(self._pods[name]) else REASON_WITHIN_S
            self._doubted[name] = asyncio.get_running_loop().call_later(within_s, self._believe, name)

    def _believe(self, name: str) -> None:
        self._doubted.pop(name, None)
        if name in self._stopping or name in self._dead or (pod := self._pods.get(name)) is None:
            return
        if (judged := death(pod, self._trouble(_node(pod)))) is not None:
            self._tell(judged)

    def _tell(self, one: Death) -> None:
        self._forget_timers(one.sandbox_id)
        self._dead[one.sandbox_id] = one
        for listener in self._listeners:
            listener.tell(one)

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
        if (why := unscheduled(pod)) is not None:
            self._tell(Death(name, "capacity_unavailable", f"no node takes it: {why}"))
        elif not _running(pod):
            detail = f"the node could not make its pod sandbox: {self._words.get(name, '')[:400]}"
            self._tell(Death(name, "start_timeout", detail))


class Events:
    """A mirror of what kubelets say of pods in events only, or there sooner than in the pods.

    Args:
        heard: gets the pod's name and the words.
    """

    def __init__(self, heard: Callable[[str, str], None]) -> None:
        self._heard = heard

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        for one in objects:
            self.put(one)

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        about = thing.get("involvedObject") or {}
        self._heard(str(about.get("name") or ""), str(thing.get("message") or ""))

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``: events expire, what they told stays."""


def _running(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _node(pod: dict[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
