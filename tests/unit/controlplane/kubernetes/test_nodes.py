"""What nodes can bear: which options are refused before a pod is made."""

from typing import Any

import pytest

from controlplane.cluster.kubernetes.api_server.quantity import amount
from controlplane.cluster.kubernetes.nodes.nodes import Fleet, Node, of_pool
from controlplane.errors import Problem
from controlplane.model import Range, SandboxSpec
from controlplane.scaling import NodePool
from tests.support.fake_kubernetes import node

FLEET = Fleet({}, (), "runsc")


def nodes(**more: Any) -> list[Node]:
    small = node("small")
    small["status"]["allocatable"] = {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    return [Node.of(small), Node.of({**node("large"), **more})]


@pytest.mark.parametrize(
    ("option", "wish", "code", "word"),
    [
        ("cpu_millicores.limit", {"cpu_millicores": {"request": 1, "limit": 2001}}, "unsupported", "large"),
        (
            "cpu_millicores.request",
            {"cpu_millicores": {"request": 2000, "limit": 2000}},
            "unsupported",
            "sidecar included",
        ),
        ("memory_bytes.limit", {"memory_bytes": {"request": 1, "limit": 9 << 30}}, "unsupported", "largest node"),
        ("disk_bytes", {"disk_bytes": 51 << 30}, "unsupported", "largest node"),
        (
            "memory_bytes.request",
            {"memory_bytes": {"request": 8 << 30, "limit": 8 << 30}},
            "unsupported",
            "sidecar included",
        ),
        ("gpu", {"gpu": 1}, "unsupported", "no node has any"),
        ("node_selector", {"node_selector": {"zone": "x"}}, "unsupported", "zone=x"),
    ],
)
def test_what_no_node_can_hold_is_refused(option: str, wish: dict[str, Any], code: str, word: str) -> None:
    with pytest.raises(Problem, match=word) as caught:
        FLEET.check(SandboxSpec.model_validate({"image": "a", **wish}), nodes())
    assert (caught.value.code, caught.value.details["option"]) == (code, option)


def test_what_a_node_can_hold_is_taken() -> None:
    FLEET.check(SandboxSpec(image="a"), nodes())
    FLEET.check(
        SandboxSpec.model_validate({"image": "a", "memory_bytes": {"request": 7 << 30, "limit": 8 << 30}}), nodes()
    )


def test_no_node_at_all_is_a_matter_of_time() -> None:
    with pytest.raises(Problem, match="no node for sandboxes") as caught:
        FLEET.check(SandboxSpec(image="a"), [])
    assert caught.value.code == "capacity_unavailable"


def test_a_selector_of_the_installation_cannot_be_turned() -> None:
    fleet = Fleet({"pool": "sandboxes"}, (), "runsc")
    labelled = Node.of({**node(), "metadata": {"name": "n", "labels": {"pool": "sandboxes"}}})
    fleet.check(SandboxSpec(image="a", node_selector={"pool": "sandboxes"}), [labelled])
    with pytest.raises(Problem, match="pool=sandboxes") as caught:
        fleet.check(SandboxSpec(image="a", node_selector={"pool": "control"}), [labelled])
    assert caught.value.code == "unsupported"


@pytest.mark.parametrize(
    ("toleration", "ready"),
    [
        ({"key": "k", "operator": "Exists"}, 1),
        ({"operator": "Exists"}, 1),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, 1),
        ({"key": "k", "value": "w"}, 0),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, 0),
        ({"key": "other", "operator": "Exists"}, 0),
    ],
)
def test_taints_keep_out_unless_they_are_tolerated(toleration: dict[str, object], ready: int) -> None:
    tainted = Node.of({**node(), "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}})
    assert Fleet({}, (toleration,), "runsc").ready([tainted]) == ready


def test_only_ready_schedulable_nodes_with_the_runtime_count() -> None:
    cordoned = Node.of({**node(), "spec": {"unschedulable": True}})
    others = [Node.of(node(ready="False")), Node.of(node(runtimeHandlers=[{"name": "runc"}])), cordoned]
    silent = node()
    del silent["status"]["runtimeHandlers"]
    assert FLEET.ready([*others, Node.of(node()), Node.of(silent)]) == 2


@pytest.mark.parametrize(
    ("text", "scale", "number"),
    [
        ("500m", 1000, 500),
        ("2", 1000, 2000),
        ("1.5", 1000, 1500),
        ("16Gi", 1, 16 << 30),
        ("1k", 1, 1000),
        ("1e3", 1, 1000),
        ("3E", 1, 3 * 10**18),
        ("100n", 1000, 0),
        ("", 1, 0),
        (None, 1, 0),
        ("much", 1, 0),
    ],
)
def test_amounts_are_read(text: str | None, scale: int, number: int) -> None:
    assert amount(text, scale) == number


def test_what_a_sandbox_requests_has_the_sidecar_and_the_overhead_of_its_runtime() -> None:
    fleet = Fleet({}, (), "runsc", (10, 48 << 20, 0, 0, 0))
    spec = SandboxSpec(image="a", memory_bytes=Range(request=128 << 20, limit=1 << 30))
    assert fleet.request(spec) == (100 + 5 + 10, (128 + 16 + 48) << 20, 128 << 20, 0, 1)
    # What fits without the overhead only is refused.
    whole = SandboxSpec(image="a", cpu_millicores=Range(request=1990, limit=2000))
    FLEET.check(whole, nodes())
    with pytest.raises(Problem, match="cpu_millicores.request needs 2005 of cpu"):
        fleet.check(whole, nodes())


def test_a_node_says_which_images_it_can_run() -> None:
    told = node("told")
    told["status"]["nodeInfo"] = {"architecture": "arm64"}
    assert [Node.of(one).architecture for one in (told, node("silent"))] == ["arm64", ""]


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.12", "docker.io/library/python:3.12"),
        ("team/app:1", "docker.io/team/app:1"),
        ("example.com/app", "example.com/app:latest"),
        ("localhost:5000/app:2", "localhost:5000/app:2"),
        (f"a@sha256:{0:064}", f"docker.io/library/a@sha256:{0:064}"),
        (f"a:1@sha256:{0:064}", f"docker.io/library/a@sha256:{0:064}"),
    ],
)
def test_an_image_is_known_by_its_full_name(name: str, full: str) -> None:
    has = node("has")
    has["status"]["images"] = [{"names": [full], "sizeBytes": 1}, {"names": None}]
    assert FLEET.have(name, [Node.of(has)])
    assert not FLEET.have("other", [Node.of(has)])


def test_what_fits_on_a_drained_node_alone_is_no_mistake_of_its_caller() -> None:
    small, large = nodes()
    gone = {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}
    large = Node.of({**node("large"), "spec": gone})
    wish = SandboxSpec(image="a", cpu_millicores=Range(request=1500, limit=1500))
    FLEET.check(wish, [small, large])
    with pytest.raises(Problem, match="no node for sandboxes") as caught:
        FLEET.check(wish, [large])
    assert caught.value.code == "capacity_unavailable"


def test_what_fits_on_a_node_that_may_come_is_not_refused() -> None:
    size = (4_000, 8 << 30, 20 << 30, 0, 64)
    pool = NodePool("general", "grpc", "g", size, 0, 9, {"pool": "general"})
    fleet = Fleet({"sandboxes": "yes"}, (), "runsc")
    coming = of_pool(pool, fleet.selector)
    fleet.check(SandboxSpec(image="a", node_selector={"pool": "general"}), [coming])
    assert fleet.ready([coming]) == 0
    with pytest.raises(Problem, match="the largest node, a node of pool general, has 4000"):
        fleet.check(SandboxSpec(image="a", cpu_millicores=Range(request=4_000, limit=4_000)), [coming])
    with pytest.raises(Problem, match="no node for sandboxes has the labels pool=other"):
        fleet.check(SandboxSpec(image="a", node_selector={"pool": "other"}), [coming])
