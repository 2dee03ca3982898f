"""Devices of sandboxes: a template for their claims, allowed and known to the control plane, where a class is named."""

from __future__ import annotations

from tests.chart.test_images import environment
from tests.support.helm import Manifest, named, of_kind, render

CLASS = "gpu.deviceClass=gpu.example.com"
HANDLER = "gpu.handler=runsc-gpu"


def policy(manifests: list[Manifest]) -> dict[str, str]:
    """The rules about claims, by message."""
    rules = named(manifests, "ValidatingAdmissionPolicy", "rollbox-rollbox-sandboxes")["spec"]["validations"]
    return {one["message"]: one["expression"] for one in rules if "resourceClaims" in one["expression"]}


def rights(manifests: list[Manifest]) -> list[Manifest]:
    """Those of the control plane about devices."""
    (role,) = [one for one in of_kind(manifests, "ClusterRole") if "controlplane" in one["metadata"]["name"]]
    return [rule for rule in role["rules"] if rule["apiGroups"] == ["resource.k8s.io"]]


def test_without_a_class_no_sandbox_has_a_claim() -> None:
    for manifests in (render(), render("gpu=null")):
        assert not of_kind(manifests, "ResourceClaimTemplate")
        assert not rights(manifests)
        assert not [name for name in environment(manifests) if name.startswith("GPU")]
        assert list(policy(manifests).values()) == ["size(object.spec.?resourceClaims.orValue([])) == 0"]


def test_a_claim_is_for_one_device_of_the_class() -> None:
    manifests = render(CLASS)
    template = named(manifests, "ResourceClaimTemplate", "rollbox-gpu")
    assert template["metadata"]["namespace"] == "rollbox-sandboxes"
    (asked,) = template["spec"]["spec"]["devices"]["requests"]
    assert asked["exactly"] == {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}
    told = environment(manifests)
    assert (told["GPU_DEVICE_CLASS"], told["GPU_CLAIM_TEMPLATE"]) == ("gpu.example.com", "rollbox-gpu")
    assert "GPU_RUNTIME_CLASS" not in told
    assert [one["metadata"]["name"] for one in of_kind(manifests, "RuntimeClass") if "preflight" not in str(one)] == [
        "gvisor"
    ]


def test_the_control_plane_looks_at_devices_and_changes_none() -> None:
    (rule,) = rights(render(CLASS))
    assert rule["verbs"] == ["list", "watch"]


def test_pods_of_sandboxes_have_claims_of_the_template_alone() -> None:
    ((message, expression),) = policy(render(CLASS)).items()
    assert "'rollbox-gpu'" in expression
    assert "of the template rollbox-gpu" in message


def test_a_handler_for_devices_is_that_of_a_class_of_its_own_which_only_pods_with_a_claim_have() -> None:
    manifests = render(CLASS, HANDLER, "runtimeClass.nodeSelector.pool=sandboxes")
    plain, own = (named(manifests, "RuntimeClass", name) for name in ("gvisor", "gvisor-gpu"))
    assert (plain["handler"], own["handler"]) == ("runsc", "runsc-gpu")
    assert (own["overhead"], own["scheduling"]) == (plain["overhead"], plain["scheduling"])
    assert environment(manifests)["GPU_RUNTIME_CLASS"] == "gvisor-gpu"
    rules = named(manifests, "ValidatingAdmissionPolicy", "rollbox-rollbox-sandboxes")["spec"]["validations"]
    assert "in ['gvisor', 'gvisor-gpu']" in rules[0]["expression"]
    assert any("== 'gvisor-gpu') == (size(" in expression for expression in policy(manifests).values())
    (role,) = [one for one in of_kind(manifests, "ClusterRole") if "controlplane" in one["metadata"]["name"]]
    (classes,) = [rule for rule in role["rules"] if rule["resources"] == ["runtimeclasses"]]
    assert classes["resourceNames"] == ["gvisor", "gvisor-gpu"]
    assert not of_kind(render(CLASS, HANDLER, "runtimeClass.create=false"), "RuntimeClass")
