"""The scheduler that packs: off by default; with it sandboxes name it, and it may do what schedulers may."""

from typing import Any

import yaml

from tests.support.helm import named, of_kind, render


def told(manifests: list[Any]) -> dict[str, Any]:
    pod = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]
    return {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}


def test_without_it_the_cluster_schedules() -> None:
    for values in ((), ("packing=null",)):
        manifests = render(*values)
        assert "ROLLBOX_CONTROLPLANE_SCHEDULER" not in told(manifests)
        assert not [one for one in manifests if "scheduler" in one["metadata"]["name"]]


def test_sandboxes_name_the_profile_and_it_fills_nodes() -> None:
    manifests = render("packing.enabled=true")
    settings = yaml.safe_load(named(manifests, "ConfigMap", "rollbox-scheduler")["data"]["config.yaml"])
    (profile,) = settings["profiles"]
    assert told(manifests)["ROLLBOX_CONTROLPLANE_SCHEDULER"] == profile["schedulerName"] != "default-scheduler"
    (fit,) = profile["pluginConfig"]
    assert fit["args"]["scoringStrategy"]["type"] == "MostAllocated"
    off = {one["name"] for one in profile["plugins"]["score"]["disabled"]}
    assert off == {"NodeResourcesBalancedAllocation", "PodTopologySpread", "InterPodAffinity", "ImageLocality"}


def test_one_replica_schedules_and_it_may_write_its_own_lease_alone() -> None:
    manifests = render("packing.enabled=true", "packing.replicas=3")
    assert named(manifests, "Deployment", "rollbox-scheduler")["spec"]["replicas"] == 3
    settings = yaml.safe_load(named(manifests, "ConfigMap", "rollbox-scheduler")["data"]["config.yaml"])
    lease = settings["leaderElection"]
    assert (lease["leaderElect"], lease["resourceName"]) == (True, "rollbox-scheduler")
    rules = named(manifests, "Role", "rollbox-scheduler")["rules"]
    assert [(one["verbs"], one.get("resourceNames")) for one in rules] == [
        (["create"], None),
        (["get", "update"], ["rollbox-scheduler"]),
    ]
    bound = [one["roleRef"]["name"] for one in of_kind(manifests, "ClusterRoleBinding") if "scheduler" in str(one)]
    assert bound == ["system:kube-scheduler", "system:volume-scheduler"]
