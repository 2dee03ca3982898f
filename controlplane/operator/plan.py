"""Plans repairs from the differences between the store's records and the cluster's pods. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from controlplane.cluster.kubernetes.marks import FINALIZER
from controlplane.cluster.kubernetes.pods.deaths import death
from controlplane.cluster.kubernetes.pods.unstopped import Unstopped, since_ms, unstopped
from controlplane.cluster.protocol import Death
from controlplane.model import UP, Sandbox

# A finalizer is stuck after this time. The control plane removes it within a second, unless it has missed the end or
# cannot reach the API server.
STUCK_MS: Final = 60_000
# A pod without a record is an orphan after this time. The record is written before the pod is created; the time allows
# for clock skew and for a store that is being rebuilt.
ORPHAN_MS: Final = 300_000
# A death without a record is missed after this time; a control plane's own watch reports it within a second.
MISSED_MS: Final = 60_000

Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remove:
    """A pod to delete, with its finalizer.

    Attributes:
        why: the reason, for logs and Events.
        uid: the pod's uid; only the pod with this uid is deleted.
    """

    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The repairs: deaths to record first, then pods to remove; and the pods that their nodes do not stop."""

    deaths: Sequence[Death]
    removals: Sequence[Remove]
    unstopped: Sequence[Unstopped]


def plan(records: Mapping[str, Sandbox], pods: Sequence[Pod], now_ms: int) -> Plan:
    """Compares records and pods.

    Args:
        records: the store's records by id, read before the pods were listed; ended ones where known.
        pods: all pods of the installation.
        now_ms: Unix time.
    """
    seen = {str(pod["metadata"]["name"]) for pod in pods}
    deaths = [dead for pod in pods if (dead := _unrecorded(pod, records, now_ms)) is not None]
    deaths += [_vanished(one) for one in records.values() if _should_have_a_pod(one, now_ms) and one.id not in seen]
    removals = [one for pod in pods if (one := _removal(pod, records, now_ms)) is not None]
    return Plan(deaths, removals, unstopped(pods, now_ms))


def _unrecorded(pod: Pod, records: Mapping[str, Sandbox], now_ms: int) -> Death | None:
    """A death that the pod shows and its record does not, long after a control plane should have recorded it."""
    record = records.get(str(pod["metadata"]["name"]))
    if record is None or record.end is not None:
        return None
    overdue = since_ms(pod, "deletionTimestamp", now_ms) > MISSED_MS or _ended_since_ms(pod, now_ms) > MISSED_MS
    return death(pod) if overdue else None


def _should_have_a_pod(record: Sandbox, now_ms: int) -> bool:
    ready_at_ms = record.ready_at_ms or now_ms
    return record.state in UP and now_ms - ready_at_ms > MISSED_MS


def _vanished(record: Sandbox) -> Death:
    return Death(record.id, "sandbox_lost", "its pod is gone, and no control plane has seen its end")


def _removal(pod: Pod, records: Mapping[str, Sandbox], now_ms: int) -> Remove | None:
    name, uid = str(pod["metadata"]["name"]), str(pod["metadata"].get("uid") or "")
    record = records.get(name)
    if record is not None and record.end is None:
        return None
    held = FINALIZER in (pod["metadata"].get("finalizers") or ())
    if pod["metadata"].get("deletionTimestamp") and not held:
        return None  # it is being deleted, and only its kubelet has something left to do
    if held and _stuck(pod, now_ms):
        return Remove(name, uid, f"its end waited for the control plane for more than {STUCK_MS // 1000} s")
    if record is None and since_ms(pod, "creationTimestamp", now_ms) > ORPHAN_MS:
        return Remove(name, uid, "the store has no record of it")
    if record is not None and record.end is not None and now_ms - record.end.at_ms > ORPHAN_MS:
        return Remove(name, uid, f"the sandbox ended ({record.end.cause}) and its pod was not removed")
    return None


def _stuck(pod: Pod, now_ms: int) -> bool:
    return since_ms(pod, "deletionTimestamp", now_ms) > STUCK_MS


def _ended_since_ms(pod: Pod, now_ms: int) -> int:
    """How long ago the last of its containers ended; -1 if one runs, or if none has run."""
    states = [one.get("state") or {} for one in (pod.get("status") or {}).get("containerStatuses") or ()]
    ends = [str((state.get("terminated") or {}).get("finishedAt") or "") for state in states]
    if not ends or not all(ends):
        return -1
    return min(now_ms - int(datetime.fromisoformat(end).timestamp() * 1000) for end in ends)
