"""The scaler: nothing of it by default, its rights only where it acts, and what the control plane is told it reads."""

import json
from typing import Any

import pytest
import yaml

from controlplane.scaling import node_pools
from tests.support.helm import ChartError, Manifest, named, of_kind, render

SIZE = {"cpuMillicores": 4000, "memoryMebibytes": 8192, "diskMebibytes": 20000, "pods": 110}
POOL: dict[str, Any] = {"name": "general", "labels": {"pool": "general"}, "max": 9, "size": SIZE}
CAPI = {**POOL, "clusterApi": {"namespace": "capi", "machineDeployment": "workers"}}
GRPC = {**POOL, "name": "others", "grpc": {"group": "g"}}
REMOTE = ("scaling.grpc.address=p:1", "scaling.grpc.serverName=p", "scaling.grpc.tlsSecret=tls")


def scaled(*pools: dict[str, Any], more: tuple[str, ...] = ()) -> list[Manifest]:
    declared = [f"scaling.nodePools[{at}]={json.dumps(pool)}" for at, pool in enumerate(pools)]
    return render("scaling.enabled=true", *more, as_json=declared)


def environment(manifests: list[Manifest]) -> dict[str, Any]:
    pod = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]
    return {one["name"].removeprefix("ROLLBOX_CONTROLPLANE_"): one.get("value") for one in pod["containers"][0]["env"]}


def rules(manifests: list[Manifest]) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """Kind, namespace, resources and verbs of the rules for the scaler."""
    return [
        (one["kind"], one["metadata"].get("namespace", ""), tuple(rule["resources"]), tuple(rule["verbs"]))
        for one in manifests
        if one["kind"] in ("Role", "ClusterRole") and one["metadata"]["name"].endswith(("-scaling", "-placeholders"))
        for rule in one["rules"]
    ]


def test_by_default_there_is_none_of_it() -> None:
    manifests = render()
    assert "scaling" not in yaml.safe_dump([one["metadata"]["name"] for one in manifests])
    assert not any(name.startswith(("NODE_POOLS", "SCALING")) for name in environment(manifests))
    assert rules(manifests) == []


def test_what_is_declared_is_what_the_control_plane_reads() -> None:
    told = environment(scaled({**CAPI, "min": 2, "price": 0.5, "arrivesWithinSeconds": 60}, GRPC, more=REMOTE))
    first, second = node_pools(json.loads(told["NODE_POOLS"]))
    assert (first.provider, first.group, first.least, first.most) == ("cluster-api", "capi/workers", 2, 9)
    assert (first.size, first.price) == ((4_000, 8 << 30, 20_000 << 20, 0, 110), 0.5)
    assert (first.labels, first.arrives_within_s) == ({"pool": "general"}, 60)
    assert (second.provider, second.group, second.arrives_within_s) == ("grpc", "g", 600)
    assert (told["SCALING_DRY_RUN"], told["SCALING_DOWN_AFTER_MS"], told["SCALING_HEADROOM"]) == (
        "false",
        "600000",
        "0",
    )
    assert (told["SCALING_PROVIDER"], told["SCALING_PROVIDER_NAME"]) == ("p:1", "p")


def test_rights_are_those_that_it_needs_and_a_dry_run_changes_nothing() -> None:
    assert rules(scaled(CAPI)) == [
        ("ClusterRole", "", ("nodes",), ("patch",)),
        ("Role", "capi", ("machinedeployments",), ("get",)),
        ("Role", "capi", ("machinedeployments/scale",), ("patch",)),
        ("Role", "capi", ("machines",), ("get", "patch", "list")),
    ]
    assert rules(scaled(CAPI, more=("scaling.dryRun=true",))) == [
        ("Role", "capi", ("machinedeployments",), ("get",)),
        ("Role", "capi", ("machines",), ("get", "list")),
    ]
    elsewhere = scaled(CAPI, more=("scaling.clusterApi.kubeconfigSecret=management",))
    assert [rule[0] for rule in rules(elsewhere)] == ["ClusterRole"]
    assert environment(elsewhere)["SCALING_KUBECONFIG"] == "/etc/rollbox/cluster-api/kubeconfig"


def test_an_autoscaler_that_has_buffers_has_one() -> None:
    more = ("sandboxes.nodeSelector.sandboxes=yes",)
    manifests = scaled({**POOL, "autoscaler": {"capacityBuffer": True}}, more=more)
    (buffer,) = of_kind(manifests, "CapacityBuffer")
    (template,) = of_kind(manifests, "PodTemplate")
    assert buffer["spec"] == {"podTemplateRef": {"name": template["metadata"]["name"]}, "replicas": 0}
    pod = template["template"]
    assert pod["metadata"]["labels"]["rollbox.dev/placeholder"] == "general"
    assert pod["spec"]["nodeSelector"] == {"pool": "general", "sandboxes": "yes"}
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "4000m"
    lowest = named(manifests, "PriorityClass", pod["spec"]["priorityClassName"])
    assert (lowest["value"], lowest["preemptionPolicy"]) == (-10, "Never")
    assert ("Role", "", ("capacitybuffers",), ("get", "patch")) in rules(manifests)
    (pool,) = node_pools(json.loads(environment(manifests)["NODE_POOLS"]))
    assert pool.provider == "capacity-buffer"


@pytest.mark.parametrize(
    ("pool", "complaint"),
    [
        ({**CAPI, "grpc": {"group": "g"}}, "oneOf"),
        (POOL, "oneOf"),
        ({**POOL, "autoscaler": {}}, "general has autoscaler without capacityBuffer: true. Sandboxes never preempt"),
        ({**CAPI, "labels": {}}, "minProperties"),
        ({**CAPI, "max": 0}, "minimum"),
        ({**CAPI, "zone": "a"}, "additional properties 'zone' not allowed"),
        ({**CAPI, "size": {"pods": 1}}, "missing propert"),
        (GRPC, "address, serverName and tlsSecret are needed"),
    ],
)
def test_a_bad_declaration_is_refused(pool: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ChartError, match=complaint):
        scaled(pool)


def test_without_a_pool_it_says_what_to_declare() -> None:
    with pytest.raises(ChartError, match=r"scaling\.nodePools is empty"):
        render("scaling.enabled=true")


def test_of_a_node_it_changes_the_cordon_and_its_own_label_alone() -> None:
    (policy,) = [
        one
        for one in of_kind(scaled(CAPI, more=("drain.byApi=false",)), "ValidatingAdmissionPolicy")
        if one["metadata"]["name"].endswith("-nodes")
    ]
    first = policy["spec"]["validations"][0]["expression"]
    assert "key == 'rollbox.dev/leaving'" in first
    assert {one["name"] for one in policy["spec"]["variables"]} == {"before", "after", "labelsBefore", "labels"}


def test_of_a_machine_it_changes_its_mark_alone() -> None:
    def policies(*more: str) -> list[Manifest]:
        found = of_kind(scaled(CAPI, more=more), "ValidatingAdmissionPolicy")
        return [one for one in found if one["metadata"]["name"].endswith("-machines")]

    (policy,) = policies()
    spec = policy["spec"]
    assert spec["matchConstraints"]["resourceRules"][0]["resources"] == ["machines"]
    assert "object.spec == oldObject.spec" in spec["validations"][0]["expression"]
    assert "key == 'cluster.x-k8s.io/delete-machine'" in spec["validations"][1]["expression"]
    for none in ("scaling.dryRun=true", "admissionPolicy.enabled=false", "scaling.clusterApi.kubeconfigSecret=other"):
        assert policies(none) == []
