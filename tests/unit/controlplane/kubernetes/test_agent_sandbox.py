"""Reading warm pools of kubernetes-sigs/agent-sandbox: what is taken over, and what is refused by name."""

from typing import Any

import pytest

from controlplane.cluster.documents import Document
from controlplane.cluster.kubernetes.declared.agent_sandbox import TEMPLATES, WARM_POOLS, pool, serves
from controlplane.model.pool import PoolSpec

WARM = {
    "metadata": {"name": "w", "uid": "w1", "generation": 2},
    "spec": {"replicas": 3, "sandboxTemplateRef": {"name": "t"}, "updateStrategy": {"type": "OnReplenish"}},
}

# By releases: none, 0.2, 0.4, 0.5.
DEFAULTS: tuple[dict[str, Any], ...] = (
    {},
    {"networkPolicyManagement": "Managed"},
    {"networkPolicyManagement": "Managed", "envVarsInjectionPolicy": "Disallowed"},
    {
        "networkPolicyManagement": "Managed",
        "envVarsInjectionPolicy": "Disallowed",
        "volumeClaimTemplatesPolicy": "Disallowed",
    },
)


def read(pod: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **container: Any) -> Document:
    of_pod = {"containers": [{"name": "c", "image": "example.com/py:3", **container}], **(pod or {})}
    template = {"metadata": {"uid": "t1"}, "spec": {"podTemplate": {"spec": of_pod}, **(spec or {})}}
    return pool(WARM, {"t": template})


def test_a_template_as_their_examples_have_it_is_a_pool() -> None:
    found = read(
        {"runtimeClassName": "gvisor", "nodeSelector": {"pool": "a"}, "restartPolicy": "OnFailure"},
        {"networkPolicyManagement": "Managed"},
        ports=[{"containerPort": 8888}],
        readinessProbe={"httpGet": {"path": "/", "port": 8888}},
        resources={
            "requests": {"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "512Mi"},
            "limits": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "4Gi", "nvidia.com/gpu": "1"},
        },
    )
    assert not found.trouble
    spec = PoolSpec.model_validate(found.body)
    assert (spec.min_warm, spec.max_warm, spec.auto) == (3, 3, False)
    assert spec.template.model_dump() == {
        "image": "example.com/py:3",
        "cpu_millicores": {"request": 250, "limit": 2000},
        "memory_bytes": {"request": 512 << 20, "limit": 1 << 30},
        "pids_limit": None,
        "disk_bytes": 4 << 30,
        "gpu": 1,
        "node_selector": {"pool": "a"},
    }


def test_a_limit_alone_is_a_request_too() -> None:
    found = read(resources={"limits": {"cpu": "1"}})
    assert found.body["template"]["cpu_millicores"] == {"request": 1000, "limit": 1000}


@pytest.mark.parametrize("filled_in", DEFAULTS)
def test_what_an_api_server_of_theirs_fills_in_is_no_wish(filled_in: dict[str, Any]) -> None:
    assert read(spec=filled_in).body["template"] == {"image": "example.com/py:3"}


def test_a_pool_without_a_number_of_replicas_has_one() -> None:
    warm = {"metadata": {"name": "w"}, "spec": {"sandboxTemplateRef": {"name": "t"}}}
    of_pod = {"containers": [{"name": "c", "image": "example.com/py:3"}]}
    found = pool(warm, {"t": {"spec": {"podTemplate": {"spec": of_pod}}}})
    assert (found.body["min_warm"], found.body["max_warm"]) == (1, 1)


@pytest.mark.parametrize(
    ("found", "also", "served"),
    [
        ((TEMPLATES, WARM_POOLS), ("sandboxclaims", f"{WARM_POOLS}/status"), True),
        ((TEMPLATES,), (f"{WARM_POOLS}/status",), False),
        ((), (), False),
    ],
)
def test_a_version_is_served_with_both_kinds(found: tuple[str, ...], also: tuple[str, ...], served: bool) -> None:
    resources = [{"name": name} for name in (*found, *also)]
    assert serves({"kind": "APIResourceList", "resources": resources}) is served
    assert not serves({})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pool(WARM, {}), "there is no SandboxTemplate 't'"),
        (read(env=[{"name": "A", "value": "1"}]), "the container 'c'.env cannot be honoured"),
        (read({"volumes": [{"name": "v"}]}), "podTemplate.spec.volumes cannot be honoured"),
        (read({"initContainers": [{"name": "i"}]}), "podTemplate.spec.initContainers cannot be honoured"),
        (read({"containers": []}), "podTemplate.spec.containers has 0 of them"),
        (read(spec={"networkPolicy": {"egress": [{}]}}), "spec.networkPolicy cannot be honoured"),
        (read(spec={"volumeClaimTemplates": [{}]}), "spec.volumeClaimTemplates cannot be honoured"),
        (read(resources={"limits": {"example.com/tpu": "1"}}), "resources.example.com/tpu cannot be honoured"),
    ],
)
def test_what_a_pool_cannot_honour_is_named(found: Document, said: str) -> None:
    assert said in found.trouble
    assert found.body == {}


def test_its_version_changes_with_either_object() -> None:
    before = read()
    newer = {**WARM, "metadata": {**WARM["metadata"], "generation": 3}}
    template = {"metadata": {"uid": "t1", "generation": 7}, "spec": {}}
    assert len({before.version, pool(newer, {}).version, pool(WARM, {"t": template}).version}) == 3
