"""What on a node says that it will go, and until when."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from controlplane.cluster.kubernetes.nodes.drain_marks import (
    ANNOTATION_DRAIN,
    SPARE_S,
    UNBOUNDED_S,
    freezes,
    marks,
    own_value,
)
from controlplane.cluster.kubernetes.nodes.draining import Draining
from controlplane.cluster.kubernetes.nodes.nodes import Node
from tests.support.fake_kubernetes import node

GKE = "cloud.google.com/impending-node-termination"


def tainted(key: str, effect: str = "NoSchedule", **labels: str) -> dict[str, Any]:
    plain = node()
    taint = {"key": key, "value": "1", "effect": effect}
    return {**plain, "metadata": {"name": "n1", "labels": labels}, "spec": {"taints": [taint]}}


def annotated(value: str, *, cordoned: bool = True) -> dict[str, Any]:
    about = {"name": "n1", "annotations": {ANNOTATION_DRAIN: value}}
    return {**node(), "metadata": about, "spec": {"unschedulable": True} if cordoned else {}}


def told(kind: str, message: str, status: str = "True") -> dict[str, Any]:
    plain = node()
    plain["status"]["conditions"].append({"type": kind, "status": status, "reason": kind, "message": message})
    return plain


@pytest.mark.parametrize(
    ("key", "notice_s"),
    [
        ("aws-node-termination-handler/spot-itn", 120),
        ("aws-node-termination-handler/scheduled-maintenance", UNBOUNDED_S),
        ("karpenter.sh/disrupted", UNBOUNDED_S),
        ("ToBeDeletedByClusterAutoscaler", UNBOUNDED_S),
        (GKE, 3600),
        ("remediator.kubernetes.azure.com/unschedulable", 30),
    ],
)
def test_the_taints_of_handlers_and_autoscalers(key: str, notice_s: int) -> None:
    (mark,) = marks(tainted(key))
    assert (mark.name, mark.until_ms, mark.notice_s, mark.by) == (key, None, notice_s, "")


@pytest.mark.parametrize("label", ["cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible"])
def test_a_spot_node_of_gke_has_half_a_minute(label: str) -> None:
    (mark,) = marks(tainted(GKE, **{label: "true"}))
    assert mark.notice_s == 30


@pytest.mark.parametrize(
    "other",
    [
        tainted("karpenter.sh/disrupted", effect="PreferNoSchedule"),
        tainted("DeletionCandidateOfClusterAutoscaler"),
        tainted("node.kubernetes.io/unschedulable"),
        told("VMEventScheduled", "Freeze Scheduled: Mon, 02 Mar 2026 19:01:45 GMT"),
        told("VMEventScheduled", "Preempt Scheduled", status="False"),
        told("MemoryPressure", "Preempt"),
        annotated(own_value(5, 1, "ops", cordoned=False), cordoned=False),
    ],
)
def test_what_ends_no_node_is_no_mark(other: dict[str, Any]) -> None:
    assert marks(other) == ()


@pytest.mark.parametrize(
    ("kind", "message", "name", "until_ms", "notice_s"),
    [
        ("VMEventScheduled", "Preempt Scheduled: Mon, 02 Mar 2026 19:01:45 GMT", "azure Preempt", 1772478105000, 30),
        ("VMEventScheduled", "Redeploy Scheduled: soon", "azure Redeploy", None, 600),
        ("TerminateScheduled", "", "azure Terminate", None, 300),
        ("VMEventScheduled", "Reboot Scheduled: Mon, 99 Mar 2026 19:01:45 GMT", "azure Reboot", None, 900),
    ],
)
def test_scheduled_events_of_azure(kind: str, message: str, name: str, until_ms: int | None, notice_s: int) -> None:
    (mark,) = marks(told(kind, message))
    assert (mark.name, mark.notice_s) == (name, notice_s)
    assert mark.until_ms == (None if until_ms is None else until_ms - SPARE_S * 1000)


@pytest.mark.parametrize(
    ("kind", "message", "status", "still"),
    [
        ("VMEventScheduled", "Freeze Scheduled: Mon, 02 Mar 2026 19:01:45 GMT", "True", True),
        ("FreezeScheduled", "", "True", True),
        ("VMEventScheduled", "Freeze Scheduled: soon", "False", False),
        ("VMEventScheduled", "Preempt Scheduled: soon", "True", False),
        ("RebootScheduled", "no Freeze", "True", False),
    ],
)
def test_a_freeze_is_told_and_its_node_is_silent_to_nobody_who_ends(
    kind: str, message: str, status: str, *, still: bool
) -> None:
    machine = told(kind, message, status=status)
    assert freezes(machine) is still
    draining = Draining(Mock(), Mock(), Mock(), Mock(), lambda: frozenset({"n1", "n2"}))
    draining.see(replace(Node.of(machine), name="n1", marks=()))
    assert draining.silent() == ({"n2"} if still else {"n1", "n2"})


def test_rollboxs_own_mark_names_moment_and_owner() -> None:
    (mark,) = marks(annotated(own_value(5_000, 1_000, "ops", cordoned=True)))
    assert (mark.until_ms, mark.since_ms, mark.by) == (5_000, 1_000, "ops")


@pytest.mark.parametrize("value", ["", "soon", "[]", "{}", '{"until_ms": "x", "since_ms": true}', '{"until_ms": -1}'])
def test_a_mark_of_ours_that_is_not_understood_is_a_drain_without_a_deadline(value: str) -> None:
    (mark,) = marks(annotated(value))
    assert (mark.until_ms, mark.since_ms, mark.notice_s) == (None, None, UNBOUNDED_S)


def test_several_marks_are_all_told() -> None:
    both = annotated(own_value(5_000, 1_000, "ops", cordoned=True))
    both["spec"]["taints"] = [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]
    assert [one.name for one in marks(both)] == [ANNOTATION_DRAIN, "ToBeDeletedByClusterAutoscaler"]


def test_a_node_without_its_passing_taints_is_one_for_sandboxes_still() -> None:
    going = tainted("karpenter.sh/disrupted")
    going["spec"]["taints"] += [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "dedicated", "value": "x", "effect": "NoSchedule"},
    ]
    assert [one["key"] for one in Node.of(going).lasting().taints] == ["dedicated"]
