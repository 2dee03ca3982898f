"""Nodes that are not proven get a taint, which goes when they are; what nobody knows changes nothing."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refusal, Refused
from controlplane.cluster.kubernetes.nodes.proof import ANNOTATION, TAINT, Proof, tainted
from controlplane.errors import Problem
from controlplane.operator.notices import Notices
from controlplane.operator.proofs import LOOKS, NO_AGENT, PATCHES, Proofs
from controlplane.wire import node_pb2

AWAY = Problem("upstream_timeout", "no agent")
OLD = node_pb2.Description(node="node-1")


def told(*troubles: str, installer: str = "installed", detail: str = "") -> node_pb2.Description:
    programs = {"runsc": "1"}
    health = node_pb2.Health(troubles=troubles, installer=installer, installer_detail=detail, programs=programs)
    return node_pb2.Description(node="node-1", health=health)


class Api:
    """One node, its agent, and the Events about it."""

    def __init__(self, answer: node_pb2.Description | Problem) -> None:
        self.node: dict[str, Any] = {"metadata": {"name": "node-1", "labels": {"role": "sandboxes"}}, "spec": {}}
        self.answer = answer
        self.events: list[str] = []
        self.others: list[dict[str, Any]] = []
        self.queries: list[Mapping[str, str]] = []
        self.conflicts = 0
        self.gets = 0

    async def list(self, path: str, query: Mapping[str, str]) -> Any:
        assert path == "/api/v1/nodes"
        self.queries.append(query)
        return SimpleNamespace(items=[*self.others, self.node])

    async def patch(self, path: str, body: Mapping[str, Any], *, within_s: float) -> None:
        assert within_s < 10
        if path != "/api/v1/nodes/node-1":
            raise AWAY
        if self.conflicts:
            self.conflicts -= 1
            self.node["metadata"]["resourceVersion"] = str(self.conflicts)
            raise Refused(Refusal.of(409, b"", None), "patch node")
        assert body["metadata"]["resourceVersion"] == self.node["metadata"].get("resourceVersion")
        notes = {key: value for key, value in body["metadata"]["annotations"].items() if value is not None}
        self.node = {
            "metadata": {**self.node["metadata"], "annotations": notes},
            "spec": {"taints": body["spec"]["taints"] or []},
        }

    async def get(self, path: str, *, within_s: float) -> dict[str, Any]:
        assert (path, within_s < 10) == ("/api/v1/nodes/node-1", True)
        self.gets += 1
        return self.node

    async def describe(self, node: str) -> node_pb2.Description:
        if isinstance(self.answer, Problem):
            raise self.answer
        return self.answer

    async def write_for_node(self, node: str, reason: str, message: str) -> None:
        self.events.append(f"{node} {reason}: {message}")

    def proofs(self, *, lifted: bool = False) -> Proofs:
        client, notices = cast("KubernetesClient", self), cast("Notices", self)
        return Proofs(client, self, notices, {"role": "sandboxes"}, lifted=lifted)


async def test_a_node_is_tainted_until_it_is_proven() -> None:
    api = Api(AWAY)
    proofs = api.proofs()
    await proofs.once()
    assert tainted(api.node)
    assert api.events == [f"node-1 NodeUnproven: no sandbox starts on this node: {NO_AGENT}"]
    api.answer = told("the installer has not finished yet")
    await proofs.once()
    assert tainted(api.node)
    api.answer = told()
    await proofs.once()
    assert not tainted(api.node)
    assert Proof.of(api.node) == Proof(installer="installed", programs={"runsc": "1"})


async def test_a_node_whose_kernel_has_low_settings_is_proven_and_says_so() -> None:
    api = Api(told())
    api.answer.health.low.append("kernel.pid_max is 32768")  # type: ignore[union-attr]
    await api.proofs().once()
    proof = Proof.of(api.node)
    assert proof is not None
    assert (proof.proven, proof.low, tainted(api.node)) == (True, ["kernel.pid_max is 32768"], False)


async def test_a_node_that_only_mounts_no_images_is_proven_and_says_why() -> None:
    api = Api(told())
    api.answer.health.lazy_trouble = "the snapshotter does not answer"  # type: ignore[union-attr]
    proofs = api.proofs()
    for _ in range(LOOKS + 1):
        await proofs.once()
    assert not tainted(api.node)
    assert api.events == []
    proof = Proof.of(api.node)
    assert proof is not None
    assert (proof.proven, proof.lazy_trouble) == (True, "the snapshotter does not answer")


@pytest.mark.parametrize("unknown", [AWAY, OLD])
async def test_a_proven_node_whose_agent_does_not_tell_stays_as_it_is(unknown: node_pb2.Description | Problem) -> None:
    api = Api(told())
    proofs = api.proofs()
    await proofs.once()
    before, api.answer = api.node, unknown
    for _ in range(LOOKS + 1):
        await proofs.once()
    assert api.node is before


async def test_a_part_that_is_started_anew_is_no_trouble_and_one_that_stays_away_is() -> None:
    api = Api(told())
    proofs = api.proofs()
    await proofs.once()
    for _ in range(3):
        api.answer = told("the snapshotter lazy does not answer")
        await proofs.once()
        api.answer = told()
        await proofs.once()
    assert not api.events
    api.answer = told("the snapshotter lazy does not answer")
    for _ in range(LOOKS):
        assert not tainted(api.node)
        await proofs.once()
    assert tainted(api.node)
    api.answer = told()
    await proofs.once()
    assert not tainted(api.node)


async def test_everything_is_lifted_when_the_installer_goes() -> None:
    api = Api(told("nothing works"))
    await api.proofs().once()
    assert tainted(api.node)
    await api.proofs(lifted=True).once()
    assert not tainted(api.node)
    assert ANNOTATION not in api.node["metadata"]["annotations"]
    assert TAINT not in str(api.node)


async def test_a_node_that_is_not_for_sandboxes_any_more_loses_its_taint() -> None:
    api = Api(told("nothing works"))
    await api.proofs().once()
    assert tainted(api.node)
    api.node["metadata"]["labels"] = {}
    await api.proofs().once()
    assert not tainted(api.node)


async def test_a_node_that_cannot_be_marked_holds_up_no_other() -> None:
    api = Api(told())
    api.others = [{"metadata": {"name": f"node-{n}", "labels": {"role": "sandboxes"}}, "spec": {}} for n in (2, 3)]
    await api.proofs().once()
    assert Proof.of(api.node) is not None


async def test_a_node_that_others_write_to_is_marked_in_the_same_look() -> None:
    api = Api(told())
    api.conflicts = PATCHES - 1
    await api.proofs().once()
    assert Proof.of(api.node) is not None
    assert api.gets == PATCHES - 1


async def test_a_node_that_changes_all_the_time_waits_for_the_next_look_and_is_told_then() -> None:
    api = Api(told(installer="failed", detail="no room"))
    api.conflicts = PATCHES
    proofs = api.proofs()
    await proofs.once()
    assert (Proof.of(api.node), api.events) == (None, [])
    await proofs.once()
    assert api.events == ["node-1 NodeInstallFailed: installer: no room"]


async def test_what_the_installer_could_not_do_is_an_event_once_though_the_node_takes_sandboxes() -> None:
    api = Api(told())
    proofs = api.proofs()
    for state, detail in [("installed", ""), *[("failed", "no room")] * 3, ("refused", "drain"), ("installed", "")]:
        api.answer = told(installer=state, detail=detail)
        await proofs.once()
        assert not tainted(api.node)
    assert api.events == ["node-1 NodeInstallFailed: installer: no room", "node-1 NodeInstallRefused: installer: drain"]
