"""Nodes that are emptied, as an API server tells them; and the mark that operators set."""

import asyncio
import json
from typing import Any

import pytest

from controlplane.clock import SystemClock
from controlplane.cluster import NodeDrains
from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.cluster.kubernetes.marks import LABEL_INSTALLATION, LABEL_SANDBOX
from controlplane.cluster.kubernetes.nodes.drain_marks import ANNOTATION_DRAIN, SPARE_S
from controlplane.cluster.kubernetes.nodes.node_room import LABEL_SLOTS
from controlplane.errors import Problem
from tests.contract.kubernetes.conftest import Opener
from tests.support.fake_kubernetes import NODES, PODS, FakeKubernetes, Fault, node
from tests.support.waiting import until

SPOT = {"key": "aws-node-termination-handler/spot-itn", "value": "e", "effect": "NoSchedule"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def drains(cluster: KubernetesCluster) -> NodeDrains:
    assert cluster.node_drains is not None
    return cluster.node_drains


async def same(found: object, expected: object) -> bool:
    return found == expected


def closed(cluster: KubernetesCluster) -> list[str]:
    assert cluster.room is not None
    return [one.node.closed for one in cluster.room.free()]


def spec_of(api: FakeKubernetes, name: str = "n1") -> dict[str, Any]:
    found: dict[str, Any] = api.objects[NODES][name]["spec"]
    return found


async def test_an_operator_drains_a_node_and_takes_it_back(api: FakeKubernetes, opener: Opener) -> None:
    async with opener() as cluster:
        changes = drains(cluster).changes()
        await drains(cluster).drain("n1", 5_000, "ops")
        assert await anext(changes) == "n1"
        said = json.loads(api.objects[NODES]["n1"]["metadata"]["annotations"][ANNOTATION_DRAIN])
        assert (said["until_ms"], said["by"], said["cordoned"]) == (5_000, "ops", False)
        assert spec_of(api)["unschedulable"] is True
        (state,) = drains(cluster).nodes()
        assert state.drain is not None
        assert (state.cordoned, state.drain.until_ms, state.drain.by) == (True, 5_000, "ops")
        await until(lambda: same(closed(cluster), ["is drained by an operator"]))
        # A second one sets another deadline and keeps since when, and what was before.
        await drains(cluster).drain("n1", 9_000, "others")
        again = json.loads(api.objects[NODES]["n1"]["metadata"]["annotations"][ANNOTATION_DRAIN])
        assert again == {**said, "until_ms": 9_000, "by": "others"}
        await drains(cluster).undrain("n1")
        assert not spec_of(api).get("unschedulable")
        await until(lambda: same(dict(drains(cluster).draining()), {}))
        await drains(cluster).undrain("n1")


@pytest.mark.parametrize(
    ("label", "pods", "most"),
    [(None, 300, 256), ("40", 300, 40), ("400", 300, 300), ("many", 300, 256), (None, 110, 110)],
)
async def test_a_node_takes_as_many_sandboxes_as_it_has_slots_and_pods(
    api: FakeKubernetes, opener: Opener, label: str | None, pods: int, most: int
) -> None:
    asked = node()
    asked["metadata"].setdefault("labels", {}).update({} if label is None else {LABEL_SLOTS: label})
    asked["status"].setdefault("allocatable", {})["pods"] = str(pods)
    await api.put(NODES, asked)
    async with opener() as cluster:
        (state,) = drains(cluster).nodes()
        assert state.max_pods == most


async def test_a_cordon_that_was_there_before_stays(api: FakeKubernetes, opener: Opener) -> None:
    await api.put(NODES, {**node(), "spec": {"unschedulable": True, "taints": [CORDONED]}})
    async with opener() as cluster:
        await drains(cluster).drain("n1", 5_000, "ops")
        await drains(cluster).undrain("n1")
        assert spec_of(api)["unschedulable"] is True
        (state,) = drains(cluster).nodes()
        assert (state.cordoned, state.drain) == (True, None)


async def test_kubectl_uncordon_ends_a_drain(api: FakeKubernetes, opener: Opener) -> None:
    async with opener() as cluster:
        await drains(cluster).drain("n1", 5_000, "ops")
        marked = api.objects[NODES]["n1"]
        await api.put(NODES, {**marked, "spec": {}})
        await until(lambda: same(dict(drains(cluster).draining()), {}))


async def test_a_notice_counts_from_when_it_is_seen_and_a_node_that_vanishes_is_not_drained(
    api: FakeKubernetes, opener: Opener
) -> None:
    async with opener() as cluster:
        changes, began_ms = drains(cluster).changes(), SystemClock().now_ms()
        await api.put(NODES, {**node(), "spec": {"taints": [SPOT]}})
        assert await anext(changes) == "n1"
        drain = drains(cluster).draining()["n1"]
        left_ms = drain.until_ms - began_ms
        assert (120 - SPARE_S) * 1000 <= left_ms <= 180_000
        assert (drain.by, drain.estimated) == (SPOT["key"], True)
        # A kubelet writes to its node all the time.
        await api.put(NODES, {**node(), "spec": {"taints": [SPOT, CORDONED], "unschedulable": True}})
        await api.put(NODES, {**node("n2"), "spec": {}})
        await until(lambda: same(drains(cluster).knows("n2"), True))
        assert drains(cluster).draining()["n1"] == drain
        with pytest.raises(Problem, match="spot instance") as kept:
            await drains(cluster).undrain("n1")
        assert kept.value.code == "conflict"
        await api.remove(NODES, "n1")
        await until(lambda: same(drains(cluster).knows("n1"), False))
        assert dict(drains(cluster).draining()) == {}


async def test_a_cordon_is_a_drain_only_where_that_was_chosen(api: FakeKubernetes, opener: Opener) -> None:
    await api.put(NODES, {**node(), "spec": {"unschedulable": True}})
    async with opener() as cluster:
        assert dict(drains(cluster).draining()) == {}
    async with opener(cordon_drains=True) as cluster:
        assert drains(cluster).draining()["n1"].by == "cordon"
        await api.put(NODES, node())
        await until(lambda: same(dict(drains(cluster).draining()), {}))


async def test_what_the_api_server_refuses_is_told_as_it_is(api: FakeKubernetes, opener: Opener) -> None:
    async with opener() as cluster:
        with pytest.raises(Problem, match="no node n9") as unknown:
            await drains(cluster).drain("n9", 1, "ops")
        assert unknown.value.code == "not_found"
        api.faults.append(Fault("PATCH", "/nodes/n1", status=403, reason="Forbidden"))
        with pytest.raises(Problem, match="drain.byApi") as forbidden:
            await drains(cluster).drain("n1", 1, "ops")
        assert forbidden.value.code == "unsupported"
        api.faults.append(Fault("PATCH", "/nodes/n1", status=409, reason="Conflict", times=2))
        await drains(cluster).drain("n1", 7_000, "ops")
        assert drains(cluster).draining()["n1"].until_ms == 7_000
        api.faults.append(Fault("PATCH", "/nodes/n1", status=409, reason="Conflict", times=99))
        with pytest.raises(Problem, match="changes all the time"):
            await drains(cluster).drain("n1", 8_000, "ops")


async def test_the_sandboxes_of_a_node_are_those_that_have_not_died(api: FakeKubernetes, opener: Opener) -> None:
    async with opener() as cluster:
        labels = {LABEL_INSTALLATION: "r", LABEL_SANDBOX: "true"}
        about = {"name": "sb-1", "uid": "u", "labels": labels}
        pod = {"metadata": about, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
        await api.put(PODS, pod)
        await api.put(PODS, {**pod, "metadata": {**about, "name": "sb-2", "uid": "v"}, "status": {"phase": "Failed"}})
        await until(lambda: same(list(drains(cluster).sandboxes("n1")), ["sb-1"]))
        await asyncio.sleep(0)
        assert list(drains(cluster).sandboxes("n2")) == []
