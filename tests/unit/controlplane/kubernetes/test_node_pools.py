"""Node pools of Cluster API and of autoscalers: what is asked of the API server, and what is believed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient, Listing
from controlplane.cluster.kubernetes.api_server.refusals import Refusal, Refused
from controlplane.cluster.kubernetes.node_pools import KubernetesNodePools
from controlplane.cluster.kubernetes.node_pools.cluster_api import AUTOSCALER, DELETE_FIRST, ClusterApi
from controlplane.cluster.kubernetes.node_pools.placeholders import Placeholders
from controlplane.cluster.kubernetes.nodes.drain_marks import own_value
from controlplane.cluster.kubernetes.nodes.pod_requests import counted
from controlplane.errors import Problem
from controlplane.scaling import NodePool
from controlplane.scaling.seen import Group, Machine

SIZE = (1, 1, 1, 0, 1)
CAPI = NodePool("general", "cluster-api", "capi/workers", SIZE, 0, 9, {"pool": "general"})
HELD = NodePool("held", "capacity-buffer", "rollbox/held", SIZE, 0, 9, {"pool": "held"})
BASE = "/apis/cluster.x-k8s.io/v1beta2/namespaces/capi"


@dataclass
class Played:
    """An API server that has these answers; a missing one is not found."""

    gets: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=dict)
    patches: list[tuple[str, Any]] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)

    async def get(self, path: str, **more: object) -> Any:
        del more
        if path not in self.gets:
            raise Refused(Refusal(404, "NotFound", f"no {path}"), path)
        return self.gets[path]

    async def list(self, path: str, query: Mapping[str, str]) -> Listing:
        return Listing(self.lists.get(f"{path}?{'&'.join(query.values())}", []), "1")

    async def patch(self, path: str, body: Any, **more: object) -> Any:
        del more
        if (status := self.refused.get(path)) is not None:
            raise Refused(Refusal(status, "Conflict" if status == 409 else "NotFound", "refused"), path)
        self.patches.append((path, body))
        return {}


def client(played: Played) -> KubernetesClient:
    return cast("KubernetesClient", played)


def machine(name: str, node: str = "", **about: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"nodeRef": {"name": node}} if node else {}
    return {"metadata": {"name": name, **about}, "status": status}


def managed(*machines: dict[str, Any], replicas: int = 2, **about: Any) -> Played:
    metadata = {"name": "workers", "resourceVersion": "7", **about}
    return Played(
        {
            "/apis/cluster.x-k8s.io": {"versions": [{"version": "v1beta1"}, {"version": "v1beta2"}]},
            f"{BASE}/machinedeployments/workers": {"metadata": metadata, "spec": {"replicas": replicas}},
        },
        {f"{BASE}/machines?cluster.x-k8s.io/deployment-name=workers": list(machines)},
    )


async def test_a_machine_deployment_is_read_with_its_machines() -> None:
    gone = machine("m3", "n3", deletionTimestamp="2026-01-01T00:00:00Z")
    failed = machine("m2")
    failed["status"] = {"phase": "Failed", "deprecated": {"v1beta1": {"failureMessage": "no stock"}}}
    found = await ClusterApi(client(managed(machine("m1", "n1"), failed, gone))).look(CAPI)
    assert found == Group(2, [Machine("m1", "n1"), Machine("m2", "", "no stock")], "7")


async def test_more_are_asked_for_by_the_version_that_was_read() -> None:
    played = managed()
    api = ClusterApi(client(played))
    await api.ask(CAPI, await api.look(CAPI), 5, 0)
    change = {"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 5}}
    assert played.patches == [(f"{BASE}/machinedeployments/workers/scale", change)]


async def test_machines_are_marked_first_and_marks_that_were_left_are_taken_away() -> None:
    left = {DELETE_FIRST: "rollbox"}
    played = managed(
        machine("m1", "n1"), machine("m2", "n2", annotations=left), machine("m3", annotations={DELETE_FIRST: "other"})
    )
    played.gets[f"{BASE}/machinedeployments/workers"]["spec"]["replicas"] = 3
    api = ClusterApi(client(played))
    await api.remove(CAPI, await api.look(CAPI), [Machine("m1", "n1")])
    assert played.patches == [
        (f"{BASE}/machines/m2", {"metadata": {"annotations": {DELETE_FIRST: None}}}),
        (f"{BASE}/machines/m1", {"metadata": {"annotations": {DELETE_FIRST: "rollbox"}}}),
        (
            f"{BASE}/machinedeployments/workers/scale",
            {"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 2}},
        ),
    ]


MARKED = {DELETE_FIRST: "rollbox"}


async def test_marks_are_taken_off_again_if_the_replicas_cannot_be_changed() -> None:
    played = managed(machine("m1", "n1"), machine("m2", "n2"))
    played.refused[f"{BASE}/machinedeployments/workers/scale"] = 409
    api = ClusterApi(client(played))
    with pytest.raises(Problem, match="has changed since it was looked at"):
        await api.remove(CAPI, await api.look(CAPI), [Machine("m1", "n1")])
    marks = [body["metadata"]["annotations"][DELETE_FIRST] for _, body in played.patches]
    assert [path for path, _ in played.patches] == 2 * [f"{BASE}/machines/m1"]
    assert marks == ["rollbox", None]


async def test_machines_that_go_already_are_not_counted_twice_and_keep_their_marks() -> None:
    # Three machines and two replicas: Cluster API has not got to the marked one yet.
    played = managed(machine("m1", "n1", annotations=MARKED), machine("m2", "n2"), machine("m3", "n3"))
    api = ClusterApi(client(played))
    await api.remove(CAPI, await api.look(CAPI), [Machine("m1", "n1"), Machine("m2", "n2")])
    assert [(path.rsplit("/")[-1], body.get("spec")) for path, body in played.patches] == [
        ("m2", None),
        ("scale", {"replicas": 1}),
    ]


async def test_a_node_that_is_opened_again_has_its_machines_mark_taken_off_first() -> None:
    played = managed(machine("m1", "n1", annotations=MARKED), machine("m2", "n2", annotations=MARKED))
    played.gets["/api/v1/nodes/n1"] = {"metadata": {"resourceVersion": "5"}, "spec": {"unschedulable": True}}
    made = pools(played, **{"cluster-api": ClusterApi(client(played))})
    await made.look(CAPI)
    await made.uncordon("n1")
    assert [path for path, _ in played.patches] == [f"{BASE}/machines/m1", "/api/v1/nodes/n1"]
    assert played.patches[0][1] == {"metadata": {"annotations": {DELETE_FIRST: None}}}


async def test_a_group_of_another_autoscaler_and_a_version_that_is_not_known_are_refused() -> None:
    with pytest.raises(Problem, match="another autoscaler") as refused:
        await ClusterApi(client(managed(annotations={AUTOSCALER: "9"}))).look(CAPI)
    assert refused.value.code == "conflict"
    played = managed()
    played.gets["/apis/cluster.x-k8s.io"] = {"versions": [{"version": "v2"}]}
    with pytest.raises(Problem, match="known are v1beta2, v1beta1"):
        await ClusterApi(client(played)).look(CAPI)


async def test_a_change_that_came_between_is_a_conflict() -> None:
    played = managed()
    played.refused[f"{BASE}/machinedeployments/workers/scale"] = 409
    api = ClusterApi(client(played))
    with pytest.raises(Problem) as refused:
        await api.ask(CAPI, await api.look(CAPI), 5, 0)
    assert refused.value.code == "conflict"


async def test_placeholders_hold_what_no_sandbox_does() -> None:
    path = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/rollbox/capacitybuffers/held"
    played = Played({path: {"metadata": {"resourceVersion": "3"}, "spec": {"replicas": 2}}})
    held = Placeholders(client(played), lambda _: 4)
    group = await held.look(HELD)
    assert group == Group(6, (), "3", names=False)
    await held.ask(HELD, group, 7, 4)
    await held.ask(HELD, group, 2, 4)
    assert [body["spec"]["replicas"] for _, body in played.patches] == [3, 0]
    with pytest.raises(Problem, match="removed by the cluster's autoscaler"):
        await held.remove(HELD, group, [])


def test_a_placeholder_takes_no_room() -> None:
    pod = {"metadata": {"labels": {}}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    assert counted(pod)
    assert not counted({**pod, "metadata": {"labels": {"rollbox.dev/placeholder": "held"}}})


class Hanging:
    """A provider that does not answer."""

    async def look(self, pool: NodePool) -> Group:
        del pool
        await asyncio.Event().wait()
        raise AssertionError

    async def ask(self, pool: NodePool, group: Group, target: int, held: int) -> None:
        raise NotImplementedError

    async def remove(self, pool: NodePool, group: Group, machines: Sequence[Machine]) -> None:
        raise NotImplementedError

    async def keep(self, pool: NodePool, node: str) -> None:
        raise NotImplementedError


def pools(played: Played, **providers: Any) -> KubernetesNodePools:
    return KubernetesNodePools(client(played), "mine", providers, lambda _: True)


async def test_a_provider_that_hangs_is_given_up() -> None:
    with pytest.raises(Problem, match="has not answered within 20 s") as late:
        await pools(Played(), **{"cluster-api": Hanging()}).look(CAPI)
    assert late.value.code == "upstream_timeout"


async def test_nodes_are_marked_as_this_installations_and_opened_again() -> None:
    path = "/api/v1/nodes/n"
    played = Played({path: {"metadata": {"resourceVersion": "5"}, "spec": {"unschedulable": True}}})
    made = pools(played)
    await made.cordon("n")
    await made.uncordon("n")
    played.refused[path] = 404
    await made.uncordon("n")
    del played.gets[path]
    await made.uncordon("n")
    assert [body for _, body in played.patches] == [
        {"metadata": {"labels": {"rollbox.dev/leaving": "mine"}}, "spec": {"unschedulable": True}},
        {
            "metadata": {"labels": {"rollbox.dev/leaving": None}, "resourceVersion": "5"},
            "spec": {"unschedulable": None},
        },
    ]
    assert made.leaving({"rollbox.dev/leaving": "mine"})
    assert not made.leaving({"rollbox.dev/leaving": "theirs"})


async def test_a_node_that_an_operator_drains_meanwhile_stays_cordoned_until_the_drain_ends() -> None:
    drain = own_value(9_000, 1_000, "ada", cordoned=True)
    about = {"resourceVersion": "5", "annotations": {"rollbox.dev/drain": drain}}
    node: dict[str, Any] = {"metadata": about, "spec": {"unschedulable": True}}
    played = Played({"/api/v1/nodes/n": node})
    made = pools(played)
    await made.uncordon("n")
    change = played.patches[-1][1]
    assert "spec" not in change
    assert change["metadata"]["labels"] == {"rollbox.dev/leaving": None}
    assert change["metadata"]["annotations"] == {"rollbox.dev/drain": own_value(9_000, 1_000, "ada", cordoned=False)}
    # Opened by hand, the node is not drained any more.
    node["spec"] = {}
    await made.uncordon("n")
    assert played.patches[-1][1]["spec"] == {"unschedulable": None}


async def test_a_node_on_which_the_api_server_has_a_sandbox_is_not_removed() -> None:
    played = managed(machine("m1", "n1"))
    made = pools(played, **{"cluster-api": ClusterApi(client(played))})
    group = await made.look(CAPI)
    live = {"metadata": {"name": "sb-1"}, "status": {"phase": "Running"}}
    played.lists["/api/v1/pods?spec.nodeName=n1&rollbox.dev/sandbox"] = [live]
    with pytest.raises(Problem, match="sb-1 is on n1") as refused:
        await made.remove(CAPI, group, group.machines)
    assert refused.value.code == "conflict"
    assert not played.patches
    live["status"] = {"phase": "Succeeded"}
    await made.remove(CAPI, group, group.machines)
    assert played.patches[-1][1]["spec"] == {"replicas": 1}


async def test_a_machine_without_a_name_is_not_removed_while_a_node_may_be_its_own() -> None:
    played = managed(machine("m1"), machine("m2", "n2"))
    made = pools(played, **{"cluster-api": ClusterApi(client(played))})
    group = await made.look(CAPI)
    played.lists["/api/v1/nodes?pool=general"] = [{"metadata": {"name": "n2"}}, {"metadata": {"name": "n1"}}]
    with pytest.raises(Problem, match="no machine names n1") as refused:
        await made.remove(CAPI, group, group.machines[:1])
    assert refused.value.code == "conflict"
    assert not played.patches
    del played.lists["/api/v1/nodes?pool=general"][1]
    await made.remove(CAPI, group, group.machines[:1])
    assert played.patches[-1][1]["spec"] == {"replicas": 1}
