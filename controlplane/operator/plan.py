"""What has to be done about the difference between the records and the pods. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from controlplane.cluster.kubernetes.deaths import death
from controlplane.cluster.kubernetes.podspec import FINALIZER
from controlplane.cluster.kubernetes.unstopped import Unstopped, since_ms, unstopped
from controlplane.cluster.protocol import Death
from controlplane.model import UP, Sandbox

# The control plane needs a second; after this it has missed the end, or cannot tell the API server.
STUCK_MS: Final = 60_000
# A record comes before its pod, so a pod without one is old news; this is for clocks and for a store being rebuilt.
ORPHAN_MS: Final = 300_000
# Its own watch tells a control plane within a second.
MISSED_MS: Final = 60_000

Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remove:
    """Take a pod away, its finalizer too.

    Attributes:
        why: one sentence for people.
        uid: of this very pod.
    """

    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: deaths to put on record first, then pods to remove; and what their nodes do not stop."""

    deaths: Sequence[Death]
    removals: Sequence[Remove]
    unstopped: Sequence[Unstopped]


def plan(records: Mapping[str, Sandbox], pods: Sequence[Pod], now_ms: int) -> Plan:
    """Compares.

    Args:
        records: what the store had before the pods were listed, by id; ended ones where known.
        pods: every pod of the installation.
        now_ms: Unix time.
    """
    seen = {str(pod["metadata"]["name"]) for pod in pods}
    deaths = [dead for pod in pods if (dead := _unrecorded(pod, records, now_ms)) is not None]
    deaths += [_vanished(one) for one in records.values() if _should_have_a_pod(one, now_ms) and one.id not in seen]
    removals = [one for pod in pods if (one := _removal(pod, records, now_ms)) is not None]
    return Plan(deaths, removals, unstopped(pods, now_ms))


def _unrecorded(pod: Pod, records: Mapping[str, Sandbox], now_ms: int) -> Death | None:
    """A death that the pod shows and its record does not, long after somebody should have seen it."""
    record = records.get(str(pod["metadata"]["name"]))
    if record is None or record.end is not None:
        return None
    overdue = since_ms(pod, "deletionTimestamp", now_ms) > MISSED_MS or _ended_since_ms(pod, now_ms) > MISSED_MS
    return death(pod) if overdue else None


def _should_have_a_pod(record: Sandbox, now_ms: int) -> bool:
    ready_at_ms = record.ready_at_ms or now_ms
    return record.state in UP and now_ms - ready_at_ms > MISSED_MS


def _vanished(record: Sandbox) -> Death:
    return Death(record.id, "sandbox_lost", "its pod is gone, and nobody saw it go")


def _removal(pod: Pod, records: Mapping[str, Sandbox], now_ms: int) -> Remove | None:
    name, uid = str(pod["metadata"]["name"]), str(pod["metadata"].get("uid") or "")
    record = records.get(name)
    if record is not None and record.end is None:
        return None
    held = FINALIZER in (pod["metadata"].get("finalizers") or ())
    if pod["metadata"].get("deletionTimestamp") and not held:
        return None  # it was asked for, and nothing of ours is in the way: the rest is its kubelet's
    if held and _stuck(pod, now_ms):
        return Remove(name, uid, f"its end waited for the control plane for more than {STUCK_MS // 1000} s")
    if record is None and since_ms(pod, "creationTimestamp", now_ms) > ORPHAN_MS:
        return Remove(name, uid, "the store has no record of it")
    if record is not None and record.end is not None and now_ms - record.end.at_ms > ORPHAN_MS:
        return Remove(name, uid, f"it ended ({record.end.cause}) and was not taken off")
    return None


def _stuck(pod: Pod, now_ms: int) -> bool:
    return since_ms(pod, "deletionTimestamp", now_ms) > STUCK_MS


def _ended_since_ms(pod: Pod, now_ms: int) -> int:
    """How long all of its containers have not run; -1 when one does, or none ever did."""
    states = [one.get("state") or {} for one in (pod.get("status") or {}).get("containerStatuses") or ()]
    ends = [str((state.get("terminated") or {}).get("finishedAt") or "") for state in states]
    if not ends or not all(ends):
        return -1
    return min(now_ms - int(datetime.fromisoformat(end).timestamp() * 1000) for end in ends)
