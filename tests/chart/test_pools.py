"""Pools and quotas as objects of the cluster: what the API server refuses by itself, and who may do what with them."""

from typing import Any

import pytest
import yaml

from controlplane.access import SCOPES
from controlplane.cluster.documents import KINDS
from controlplane.cluster.kubernetes.declared.documents import GROUP, NAMES, PLURALS, VERSION
from controlplane.egress import EgressLimits, EgressRule
from controlplane.lifecycle.admission.quotas import DeclaredQuota
from controlplane.lifecycle.egress.presets import DeclaredPreset
from controlplane.lifecycle.keys import DeclaredKey
from controlplane.model.dataset import DatasetSpec
from controlplane.model.pool import PoolSpec
from tests.support.helm import CHART, ChartError, Manifest, named, of_kind, render

# Kept word for word by the API server; every other keyword of a structural schema would need a look here.
KNOWN = {
    "type",
    "format",
    "required",
    "properties",
    "items",
    "additionalProperties",
    "description",
    "nullable",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "maxItems",
    "minItems",
    "enum",
    "maxProperties",
    "x-kubernetes-validations",
    "x-kubernetes-int-or-string",
}


def definition(plural: str) -> Manifest:
    found: Manifest = yaml.safe_load((CHART / "files" / "crds" / f"{plural}.{GROUP}.yaml").read_text())
    return found


def schema(plural: str) -> dict[str, Any]:
    (version,) = definition(plural)["spec"]["versions"]
    assert (version["name"], version["served"], version["storage"]) == (VERSION, True, True)
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_is_what_the_control_plane_asks_for(kind: Any) -> None:
    found = definition(PLURALS[kind])
    assert found["metadata"]["name"] == f"{PLURALS[kind]}.{GROUP}"
    assert (found["spec"]["group"], found["spec"]["scope"]) == (GROUP, "Namespaced")
    assert (found["spec"]["names"]["kind"], found["spec"]["names"]["plural"]) == (NAMES[kind], PLURALS[kind])
    assert found["spec"]["versions"][0]["subresources"] == {"status": {}}


def _keywords(node: dict[str, Any]) -> set[str]:
    below = [*node.get("properties", {}).values(), *([node["items"]] if "items" in node else [])]
    return set(node).union(*(_keywords(one) for one in below))


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_has_a_type_everywhere_and_nothing_unknown(kind: Any) -> None:
    for part in ("spec", "status"):
        assert _keywords(schema(PLURALS[kind])[part]) <= KNOWN


def test_a_pool_has_the_same_fields_here_and_in_the_api() -> None:
    spec = schema("sandboxpools")["spec"]
    assert set(spec["properties"]) == set(PoolSpec.model_fields)
    assert set(spec["required"]) == {name for name, one in PoolSpec.model_fields.items() if one.is_required()}
    template = PoolSpec.model_fields["template"].annotation
    assert template is not None
    assert set(spec["properties"]["template"]["properties"]) == set(template.model_fields)
    for name, field in spec["properties"].items():
        if field["type"] == "integer":
            ours = PoolSpec.model_json_schema()["properties"][name]
            assert (field["minimum"], field["maximum"]) == (ours["minimum"], ours["maximum"]), name


def test_a_quota_has_the_same_fields_here_and_in_the_api() -> None:
    assert set(schema("sandboxquotas")["spec"]["properties"]) == set(DeclaredQuota.model_fields)


def test_an_egress_preset_has_the_same_fields_here_and_in_the_api() -> None:
    properties = schema("egresspresets")["spec"]["properties"]
    assert set(properties) == set(DeclaredPreset.model_fields)
    assert set(properties["limits"]["properties"]) == set(EgressLimits.model_fields)
    for side in ("allow", "deny"):
        assert set(properties[side]["items"]["properties"]) == set(EgressRule.model_fields)


def test_a_data_set_has_the_same_fields_here_and_in_the_api() -> None:
    assert set(schema("datasets")["spec"]["properties"]) == set(DatasetSpec.model_fields)


def test_a_key_has_the_same_fields_and_scopes_here_and_in_the_api() -> None:
    properties = schema("apikeys")["spec"]["properties"]
    assert set(properties) == set(DeclaredKey.model_fields)
    assert properties["scopes"]["items"]["enum"] == list(SCOPES)


def test_contradictory_sizes_are_refused_by_the_api_server() -> None:
    rules = [one["rule"] for one in schema("sandboxpools")["spec"]["x-kubernetes-validations"]]
    assert any("self.min_warm <= self.max_warm" in rule for rule in rules)
    assert any("self.auto" in rule for rule in rules)


def _about(manifests: list[Manifest], group: str) -> list[dict[str, Any]]:
    role = next(one for one in of_kind(manifests, "Role") if one["metadata"]["name"].endswith("controlplane"))
    assert role["metadata"]["namespace"] == "rollbox-sandboxes"
    return [rule for rule in role["rules"] if group in rule["apiGroups"]]


def test_only_the_control_plane_may_write_them_and_only_where_the_sandboxes_are() -> None:
    manifests = render()
    kinds = sorted(PLURALS.values())
    assert _about(manifests, GROUP) == [
        {"apiGroups": [GROUP], "resources": kinds, "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
        {"apiGroups": [GROUP], "resources": [f"{kind}/status" for kind in kinds], "verbs": ["patch"]},
    ]
    others = [one for kind in ("Role", "ClusterRole") for one in of_kind(manifests, kind)]
    holding = [one["metadata"]["name"] for one in others for rule in one["rules"] if GROUP in rule["apiGroups"]]
    assert set(holding) == {"rollbox-controlplane"}


def test_the_definitions_are_upgraded_with_the_release_and_outlive_it() -> None:
    found = of_kind(render(), "CustomResourceDefinition")
    assert [one["metadata"]["name"] for one in found] == [f"{plural}.{GROUP}" for plural in sorted(PLURALS.values())]
    assert {one["metadata"]["annotations"]["helm.sh/resource-policy"] for one in found} == {"keep"}
    assert [one["spec"] for one in found] == [definition(plural)["spec"] for plural in sorted(PLURALS.values())]
    assert not of_kind(render("crds.install=false"), "CustomResourceDefinition")
    # So are the values of an earlier chart (`helm upgrade --reuse-values`).
    assert of_kind(render("crds=null"), "CustomResourceDefinition") == found


def test_objects_of_agent_sandbox_are_read_only_when_that_is_wanted() -> None:
    group = "extensions.agents.x-k8s.io"
    assert _about(render(), group) == []
    manifests = render("pools.agentSandbox=true")
    (rule,) = _about(manifests, group)
    assert (rule["resources"], rule["verbs"]) == (["sandboxtemplates", "sandboxwarmpools"], ["list", "watch"])
    pod = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]
    environment = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert environment["ROLLBOX_CONTROLPLANE_AGENT_SANDBOX"] == "true"
    with pytest.raises(ChartError, match="agentSandbox"):
        render("pools.agentSandbox=maybe")
