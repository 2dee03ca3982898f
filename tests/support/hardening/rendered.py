"""The chart with all that it can install, and the pods that the control plane and the doctor make themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from controlplane.cluster import Boot
from controlplane.cluster.kubernetes.builds import pod as builds
from controlplane.cluster.kubernetes.doctor import network_check
from controlplane.cluster.kubernetes.doctor.release_checks import answers, asking, inside
from controlplane.cluster.kubernetes.doctor.releases import Release
from controlplane.cluster.kubernetes.pods import podspec
from controlplane.cluster.protocol.mounts import DatasetAt, ScratchAt
from controlplane.model import SandboxSpec
from controlplane.model.dataset import DatasetSpec
from controlplane.reach.ways import Way
from controlplane.settings import BuildSettings
from tests.support.helm import REGISTRY, Manifest, named, pods, render

Json = dict[str, Any]
RELEASE: Final = "rollbox"
SANDBOXES: Final = "rollbox-sandboxes"
NODE_POOL: Final = {
    "labels": {"pool": "general"},
    "max": 9,
    "size": {"cpuMillicores": 4000, "memoryMebibytes": 8192, "diskMebibytes": 20000, "pods": 110, "gpu": 1},
}
NODE_POOLS: Final = (
    {"name": "general", "clusterApi": {"namespace": "machines", "machineDeployment": "workers"}, **NODE_POOL},
    {"name": "others", "grpc": {"group": "g"}, **NODE_POOL},
    {"name": "third", "autoscaler": {"capacityBuffer": True}, **NODE_POOL},
)
# What an operator names stands in the tables under a name that says so.
COMMON: Final = (
    "egress.enabled=true",
    "egress.packages.enabled=true",
    "egress.packages.existingClaim=your-claim",
    "nodeAgent.enabled=true",
    "nodeAgent.installer.enabled=true",
    "nodeAgent.installer.raiseLimits=true",
    "lazyPulling.enabled=true",
    "registry.enabled=true",
    "registry.peers.enabled=true",
    "registry.peers.metricsPort=5449",
    "builds.enabled=true",
    "packing.enabled=true",
    "pools.agentSandbox=true",
    "gpu.deviceClass=gpu.example.com",
    "gpu.handler=runsc-gpu",
    "datasets.folders[0]=/srv/datasets",
    "datasets.imageVolumes=true",
    "scratch.storageClass=shared",
    "sandboxes.imagePullSecrets[0]=your-pull-secret",
    "scaling.enabled=true",
    "scaling.grpc.address=provider:1",
    "scaling.grpc.serverName=provider",
    "scaling.grpc.tlsSecret=your-provider-tls",
    "gateway.tlsSecret=your-gateway-tls",
    "networkPolicies.metricsFrom[0].namespaceSelector.matchLabels.metrics=yours",
    "drain.evictions=refused",
    "apiFairness.enabled=true",
    *(
        f"bridges.{protocol}.{value}"
        for protocol in ("e2b", "prime", "fusion")
        for value in ("enabled=true", "keysSecret=your-bridge-keys", "tlsSecret=your-bridge-tls")
    ),
)
DIRECT: Final = {"a": {"allow": [{"cidr": "203.0.113.0/24", "ports": [5432]}]}}
JSON_VALUES: Final = (
    'egress.presets={"mirror":{"mode":"allow","allow":[{"host":"mirror.example.com"}]}}',
    *(f"scaling.nodePools[{at}]={json.dumps(pool)}" for at, pool in enumerate(NODE_POOLS)),
    f"egress.direct={json.dumps({'enabled': True, 'networks': DIRECT})}",
)
EXTERNAL: Final = (
    "registry.external.host=r.example.com:5000",
    "registry.external.existingSecret=your-registry-account",
)
# A data set of each kind, and a scratch.
MOUNTS: Final = (
    DatasetAt("/folder", "a", DatasetSpec(folder="/srv/datasets")),
    DatasetAt("/claim", "b", DatasetSpec(claim="your-claim")),
    DatasetAt("/image", "c", DatasetSpec(image="registry.example.com/data:1")),
    ScratchAt("/scratch", "key", 1 << 30),
)
# Together they have each part in each form that differs in rights.
VARIANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "everything": COMMON,
    "without systemd": (*COMMON, "nodeAgent.installer.supervisor=process"),
    "a registry of yours": (*COMMON, "registry.peers.enabled=false", *EXTERNAL, "registry.external.ownAuthority=true"),
    "a management cluster": (*COMMON, "scaling.clusterApi.kubeconfigSecret=your-kubeconfig"),
}


@cache
def variant(name: str) -> list[Manifest]:
    """The manifests of one of ``VARIANTS``. Cost: two seconds, once."""
    return render(*VARIANTS[name], as_json=JSON_VALUES)


def component(pod: Manifest) -> str:
    """The part of rollbox that a pod is of."""
    labels = pod["metadata"]["labels"]
    own = labels["app.kubernetes.io/name"].removeprefix("rollbox-")
    return str(labels.get("app.kubernetes.io/component") or own)


def of_chart(manifests: list[Manifest]) -> Iterator[tuple[str, Json]]:
    """The pods that manifests lead to, with those that a hook or an autoscaler makes of them."""
    for _, pod in pods(manifests):
        yield component(pod), pod
    for one in manifests:
        if one["kind"] == "PodTemplate":
            yield component(one["template"]), one["template"]
    settings = named(manifests, "ConfigMap", f"{RELEASE}-preflight")["data"]["settings.json"]
    probe = json.loads(settings)["pod"]
    yield component(probe), probe


def made_by_programs() -> Iterator[tuple[str, str, Json]]:
    """Name, namespace and pod of each that the control plane or ``rollbox doctor --cluster`` makes."""
    sidecar, ready = f"{REGISTRY}/sidecar:1", "http://192.0.2.1:8082"
    defaults = podspec.PodDefaults(SANDBOXES, RELEASE, sidecar, ready, "gvisor", 16)
    boot = Boot(ready_token="t", token_public_key="k", record="{}", mounts=MOUNTS)
    for name, network in (("sandbox", ""), ("sandbox-direct", "a")):
        spec = SandboxSpec(image="the-users", network=network)
        yield name, SANDBOXES, podspec.pod("sb-1", spec, boot, defaults, start_by_ms=0)
    for in_memory in (False, True):
        settings = BuildSettings(f"{REGISTRY}/builder:1", 2_000, 1 << 32, 1 << 34, in_memory)
        yield "builder", SANDBOXES, builds.pod("build-1", "token", defaults, settings, "amd64")
    for namespace, pod in _of_doctor():
        yield f"doctor-{pod['metadata']['name']}", namespace, pod


def _of_doctor() -> Iterator[tuple[str, Json]]:
    release = Release.of(_with_namespace(named(variant("everything"), "Deployment", f"{RELEASE}-controlplane")))
    check = network_check.of_release(release, [Way("a", "192.0.2.1", 1)], "192.0.2.2")
    temporary = network_check.of_namespace("rollbox-doctor-1", release.image, "gvisor", [], "192.0.2.3")
    yield SANDBOXES, network_check.inside(check, "inside")
    yield release.namespace, network_check.outside(check, "outside", [])
    yield temporary.sandboxes, network_check.peer(temporary.sandboxes, "peer", release.image)
    yield SANDBOXES, inside.manifest(release, "limits")
    yield release.namespace, asking.manifest(release, "asks", ("python3",), ("gateway", 80), {})
    yield SANDBOXES, answers.named(release, "named", 16)
    yield release.namespace, answers.asking(release, "resolver", "192.0.2.4", ["a"])


def _with_namespace(deployment: Manifest) -> Manifest:
    return {**deployment, "metadata": {**deployment["metadata"], "namespace": RELEASE}}


def everything() -> Iterator[tuple[str, str, Json]]:
    """Name, namespace and pod of each, in each form that it has; one name may come often. Cost: ten seconds, once."""
    for name in VARIANTS:
        yield from ((part, RELEASE, pod) for part, pod in of_chart(variant(name)))
    yield from made_by_programs()
