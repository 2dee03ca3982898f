"""The marks on a node that say that it will go: rollbox's own, and those of the usual handlers and autoscalers. Pure.

A mark that names no time has one that is counted from when it is first seen: what the notice leaves, less ``SPARE_S``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

from controlplane.model.spec import MAX_TTL_MS

# rollbox's own; it holds only while the node is cordoned, so that `kubectl uncordon` ends it too.
ANNOTATION_DRAIN: Final = "rollbox.dev/drain"
OWN: Final = "rollbox.dev/drain"
CORDON: Final = "cordon"
# Between the last end and the end of the node: for the ends to be told, and for clocks.
SPARE_S: Final = 5
# Of handlers that give no deadline, and evict by themselves: sandboxes there live on until then.
UNBOUNDED_S: Final = MAX_TTL_MS // 1000
_TAINTS: Final[Mapping[str, tuple[int, str]]] = {
    "aws-node-termination-handler/spot-itn": (120, "is a spot instance that is interrupted"),
    "aws-node-termination-handler/scheduled-maintenance": (UNBOUNDED_S, "is scheduled for maintenance"),
    "aws-node-termination-handler/asg-lifecycle-termination": (UNBOUNDED_S, "is terminated by its scaling group"),
    "aws-node-termination-handler/rebalance-recommendation": (UNBOUNDED_S, "is a spot instance at risk"),
    "karpenter.sh/disrupted": (UNBOUNDED_S, "is disrupted by Karpenter"),
    "karpenter.sh/disruption": (UNBOUNDED_S, "is disrupted by Karpenter"),
    "ToBeDeletedByClusterAutoscaler": (UNBOUNDED_S, "is removed by the cluster autoscaler"),
    "cloud.google.com/impending-node-termination": (3600, "is about to be terminated"),
    "remediator.aks.microsoft.com/unschedulable": (30, "is drained by AKS"),
    "remediator.kubernetes.azure.com/unschedulable": (30, "is drained by AKS"),
}
# Nodes of GKE that are told 30 s before they go; the others an hour.
_GKE_SHORT: Final = ("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible")
_GKE: Final = "cloud.google.com/impending-node-termination"
_GKE_SHORT_S: Final = 30
# Scheduled events of Azure's machines, as AKS's node problem detector tells them. A freeze ends nothing.
_AZURE_S: Final[Mapping[str, int]] = {"Preempt": 30, "Terminate": 300, "Redeploy": 600, "Reboot": 900}
_AZURE_CONDITIONS: Final = ("VMEventScheduled", *(f"{event}Scheduled" for event in _AZURE_S))
_AZURE_EVENT: Final = re.compile(rf"\b({'|'.join(_AZURE_S)})")
# So long, up to half a minute, the machine stands still; then it goes on.
_AZURE_FREEZE: Final = ("FreezeScheduled", "VMEventScheduled")
_AZURE_TIME: Final = re.compile(r"[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT")
_KEEPS_OUT: Final = ("NoSchedule", "NoExecute")
_MAX_BY_CHARS: Final = 128


@dataclass(frozen=True, slots=True)
class Mark:
    """Something on a node that says that it will go.

    Attributes:
        name: the same as long as the mark is.
        why: for people, as the end of "its node ".
        until_ms: when what is left there ends (Unix ms); None: ``notice_s`` after it was first seen.
        since_ms: since when it is there, if it tells.
        by: who has asked for it; empty: the mark itself.
    """

    name: str
    why: str
    until_ms: int | None = None
    notice_s: int = UNBOUNDED_S
    since_ms: int | None = None
    by: str = ""


def marks(node: Mapping[str, Any]) -> tuple[Mark, ...]:
    """All marks on a node, as the API has it."""
    return (*_own(node), *_of_taints(node), *_of_conditions(node))


def is_mark(taint: Mapping[str, Any]) -> bool:
    """Whether a taint is one of the marks."""
    return taint.get("key") in _TAINTS


def freezes(node: Mapping[str, Any]) -> bool:
    """Whether a cloud has said that a node's machine stands still for a moment, and goes on then."""
    return any(
        one.get("status") == "True" and f"{one.get('type')} {one.get('reason')} {one.get('message')}".count("Freeze")
        for one in (node.get("status") or {}).get("conditions") or ()
        if one.get("type") in _AZURE_FREEZE
    )


def own_value(until_ms: int, since_ms: int, by: str, *, cordoned: bool) -> str:
    """What the annotation says.

    Args:
        until_ms: when what is left there ends (Unix ms).
        since_ms: when it was asked for first (Unix ms).
        by: who has asked for it.
        cordoned: whether the node was cordoned before, and stays so when the drain is taken back.
    """
    return json.dumps({"until_ms": until_ms, "since_ms": since_ms, "by": by, "cordoned": cordoned})


def own_fields(node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the annotation says; empty: nothing that is understood; None: there is none."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION_DRAIN)
    if text is None:
        return None
    try:
        fields = json.loads(text)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _own(node: Mapping[str, Any]) -> Iterator[Mark]:
    fields = own_fields(node)
    if fields is None or not (node.get("spec") or {}).get("unschedulable"):
        return
    until_ms, since_ms = _moment(fields.get("until_ms")), _moment(fields.get("since_ms"))
    by = str(fields.get("by") or "")[:_MAX_BY_CHARS]
    # Whoever has written something else wants a drain too; how long it may take is not known.
    yield Mark(OWN, "is drained by an operator", until_ms, since_ms=since_ms, by=by)


def _of_taints(node: Mapping[str, Any]) -> Iterator[Mark]:
    labels = node["metadata"].get("labels") or {}
    for taint in (node.get("spec") or {}).get("taints") or ():
        known = _TAINTS.get(str(taint.get("key")))
        if known is None or taint.get("effect") not in _KEEPS_OUT:
            continue
        notice_s, why = known
        if taint["key"] == _GKE and any(labels.get(one) == "true" for one in _GKE_SHORT):
            notice_s = _GKE_SHORT_S
        yield Mark(str(taint["key"]), why, notice_s=notice_s)


def _of_conditions(node: Mapping[str, Any]) -> Iterator[Mark]:
    for one in (node.get("status") or {}).get("conditions") or ():
        if one.get("type") not in _AZURE_CONDITIONS or one.get("status") != "True":
            continue
        words = f"{one.get('type')} {one.get('reason')} {one.get('message')}".replace("VMEventScheduled", "")
        if (event := _AZURE_EVENT.search(words)) is not None:
            why = f"has a scheduled event: {event[1]}"
            yield Mark(f"azure {event[1]}", why, _azure_time_ms(words), _AZURE_S[event[1]])


def _azure_time_ms(words: str) -> int | None:
    if (found := _AZURE_TIME.search(words)) is None:
        return None
    try:
        return round(parsedate_to_datetime(found[0]).timestamp() * 1000) - SPARE_S * 1000
    except ValueError:
        return None


def _moment(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15 else None
