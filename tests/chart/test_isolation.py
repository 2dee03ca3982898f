"""Isolation that is looked at: what the preflight's probe is held by, and what `helm test` may."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.helm import Manifest, matches, named, notes, of_kind, render


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render()


def settings_of(manifests: list[Manifest]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        named(manifests, "ConfigMap", "rollbox-preflight")["data"]["settings.json"],
    )
    return found


def selected(manifests: list[Manifest], pod: Mapping[str, Any]) -> dict[str, Manifest]:
    """The policies of the release's namespace that hold a pod."""
    policies = [one for one in of_kind(manifests, "NetworkPolicy") if not one["metadata"].get("namespace")]
    held = [one for one in policies if matches(one["spec"]["podSelector"], pod["metadata"]["labels"])]
    return {one["metadata"]["name"]: one["spec"] for one in held}


def test_the_probe_is_held_as_a_sandbox_is(manifests: list[Manifest]) -> None:
    job = named(manifests, "Job", "rollbox-preflight")["spec"]["template"]
    specs = selected(manifests, settings_of(manifests)["pod"])
    assert specs.pop("rollbox-preflight-deny-all")["policyTypes"] == ["Ingress", "Egress"]
    (ready,) = specs.pop("rollbox-preflight-ready")["egress"]
    assert not specs
    (peer,) = ready["to"]
    assert matches(peer["podSelector"], job["metadata"]["labels"])
    assert ready["ports"] == [{"port": 8082, "protocol": "TCP"}]


def test_what_listens_lets_the_probe_in_and_goes_anywhere(manifests: list[Manifest]) -> None:
    job = named(manifests, "Job", "rollbox-preflight")["spec"]["template"]
    ((name, spec),) = selected(manifests, job).items()
    assert (name, spec["policyTypes"]) == ("rollbox-preflight-listens", ["Ingress"])
    network = settings_of(manifests)["network"]
    assert [one["port"] for one in spec["ingress"][0]["ports"]] == [network["readyPort"], network["otherPort"]]


def test_the_probe_has_what_a_sandbox_has_and_no_more(manifests: list[Manifest]) -> None:
    spec = settings_of(manifests)["pod"]["spec"]
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
    assert "serviceAccountName" not in spec
    assert spec["restartPolicy"] == "Never"


def test_without_policies_nothing_is_tried() -> None:
    manifests = render("networkPolicies.enabled=false")
    assert settings_of(manifests)["network"] is None
    assert not of_kind(manifests, "NetworkPolicy")


def test_the_risk_is_accepted_by_a_value() -> None:
    for values, accepted in ((), "false"), (("networkPolicies.acceptUnenforced=true",), "true"):
        manifests = render(*values)
        assert settings_of(manifests)["network"]["accepted"] is (accepted == "true")
        assert {"name": "ACCEPT_UNENFORCED", "value": accepted} in environment(manifests)
    assert {"name": "ACCEPT_UNENFORCED", "value": "true"} in environment(render("networkPolicies.enabled=false"))


def environment(manifests: list[Manifest]) -> list[dict[str, str]]:
    """Of what `helm test` runs."""
    (container,) = named(manifests, "Pod", "rollbox-test")["spec"]["containers"]
    return list(container["env"])


def test_helm_test_may_look_where_its_sandboxes_are_and_no_more(manifests: list[Manifest]) -> None:
    role = named(manifests, "Role", "rollbox-test")
    assert role["metadata"]["namespace"] == "rollbox-sandboxes"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    assert named(manifests, "Pod", "rollbox-test")["spec"]["serviceAccountName"] == "rollbox-test"


@pytest.mark.parametrize(
    ("hook", "first"), [("preflight", "preflight"), ("teardown", "teardown"), ("test", "helm_test")]
)
def test_a_hook_has_every_module_that_it_imports(manifests: list[Manifest], hook: str, first: str) -> None:
    files = named(manifests, "ConfigMap", f"rollbox-{hook}")["data"]
    for name, text in files.items():
        imported = {line.split()[1] for line in text.splitlines() if line.startswith("from .")}
        assert {f"{one.removeprefix('.')}.py" for one in imported} <= files.keys(), name
    assert f"{first}.py" in files


def test_the_notes_tell_the_risk() -> None:
    words = {
        "preflight.enabled=false": "not checked whether the network plugin enforces NetworkPolicy",
        "networkPolicies.acceptUnenforced=true": "acceptUnenforced is on: sandboxes can reach your network",
        "networkPolicies.enabled=false": "networkPolicies.enabled is off: sandboxes can reach your network",
    }
    for setting, told in words.items():
        shown = notes(setting)
        assert [other for other in words.values() if other in shown] == [told]
    assert "your network" not in notes()
