"""Builds of the chart: what is there with them and without, and what they need."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.helm import ChartError, Manifest, named, of_kind, render

ON: Final = (
    "builds.enabled=true",
    "nodeAgent.enabled=true",
    "registry.enabled=true",
    "registry.addresses[0]=10.1.2.3",
)


def environment(manifests: list[Manifest]) -> dict[str, str]:
    (container,) = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_there_are_none_unless_they_are_asked_for() -> None:
    for manifests in (render(), render(*ON[1:])):
        assert not [one for one in environment(manifests) if "BUILDER" in one]
        assert "rollbox-builder" not in {one["metadata"]["name"] for one in of_kind(manifests, "NetworkPolicy")}


def test_the_control_plane_has_a_place_for_contexts() -> None:
    for manifests, places in ((render(*ON), [{"sizeLimit": "16Gi"}]), (render(*ON[1:]), [])):
        pod = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]
        assert [one["emptyDir"] for one in pod["volumes"] if one["name"] == "contexts"] == places
        mounted = [one["mountPath"] for one in pod["containers"][0]["volumeMounts"] if one["name"] == "contexts"]
        assert mounted == ["/var/tmp"] * len(places)


def test_the_control_plane_knows_the_builder_and_its_limits() -> None:
    told = environment(render(*ON, "builds.limits.diskMebibytes=1024", "images.builder=registry.example.com/b:1"))
    assert {name.rpartition("BUILDER_")[2]: value for name, value in told.items() if "BUILDER" in name} == {
        "IMAGE": "registry.example.com/b:1",
        "CPU_MILLICORES": "2000",
        "MEMORY_BYTES": str(4 << 30),
        "DISK_BYTES": str(1 << 30),
        "STATE": "disk",
        "KEEP_MS": "60000",
    }


def test_only_the_control_plane_reaches_a_builder_and_a_builder_reaches_nothing() -> None:
    policy = named(render(*ON), "NetworkPolicy", "rollbox-builder")
    assert policy["metadata"]["namespace"] == "rollbox-sandboxes"
    spec = policy["spec"]
    assert spec["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == "rollbox-builder"
    # Of the way out says the policy that denies all.
    assert spec["policyTypes"] == ["Ingress"]
    (rule,) = spec["ingress"]
    (peer,) = rule["from"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "controlplane"
    assert rule["ports"] == [{"port": 7070, "protocol": "TCP"}]


@pytest.mark.parametrize("missing", ["nodeAgent.enabled=false", "registry.enabled=false"])
def test_they_need_where_images_are_kept(missing: str) -> None:
    with pytest.raises(ChartError, match=r"builds\.enabled needs nodeAgent\.enabled and registry\.enabled"):
        render(*ON, missing)


@pytest.mark.parametrize(
    "wrong", ["builds.state=tape", "builds.limits.diskMebibytes=1", "builds.limits.cpu=1", "builds.on=true"]
)
def test_wrong_values_are_refused(wrong: str) -> None:
    with pytest.raises(ChartError):
        render(*ON, wrong)
