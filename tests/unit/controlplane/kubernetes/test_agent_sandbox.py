"""Reading warm pools of kubernetes-sigs/agent-sandbox: what is taken over, and what is refused by name."""

from typing import Any

import pytest

from controlplane.cluster.documents import Document
from controlplane.cluster.kubernetes.agent_sandbox import pool
from controlplane.model.pool import PoolSpec

WARM = {
    "metadata": {"name": "w", "uid": "w1", "generation": 2},
    "spec": {"replicas": 3, "sandboxTemplateRef": {"name": "t"}, "updateStrategy": {"type": "OnReplenish"}},
}


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


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pool(WARM, {}), "there is no SandboxTemplate 't'"),
        (read(env=[{"name": "A", "value": "1"}]), "the container 'c'.env cannot be honoured"),
        (read({"volumes": [{"name": "v"}]}), "podTemplate.spec.volumes cannot be honoured"),
        (read({"initContainers": [{"name": "i"}]}), "podTemplate.spec.initContainers cannot be honoured"),
        (read({"containers": []}), "podTemplate.spec.containers has 0 of them"),
        (read(spec={"networkPolicy": {"egress": [{}]}}), "spec.networkPolicy cannot be honoured"),
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
