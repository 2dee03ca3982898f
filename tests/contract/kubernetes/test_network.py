"""`rollbox doctor --cluster` tries whether the network holds sandboxes: on an API server whose kubelet is played."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.check_result import CheckResult
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.doctor import check_pods, network, network_check
from controlplane.cluster.kubernetes.doctor.releases import SELECTOR
from controlplane.reach.attempts import Ending, Seen, plain
from controlplane.reach.ways import Way, loaded
from tests.support.fake_kubernetes import DEPLOYMENTS, FakeKubernetes, Fault

Json = dict[str, Any]
OWN = "rollbox-doctor-0a0a"
SERVICES = "/api/v1/namespaces/{}/services"
ENVIRONMENT = {
    "INSTALLATION": "r",
    "NAMESPACE": "r-sandboxes",
    "READY_URL": "http://r-ready.r.svc.cluster.local:8082",
    "RUNTIME_CLASS": "gvisor",
    "NODE_SELECTOR": '{"pool": "sandboxes"}',
    "TOLERATIONS": '[{"key": "sandboxes", "operator": "Exists"}]',
    "IMAGE_PULL_SECRETS": "regcred",
}
DEPLOYMENT: Json = {
    "metadata": {"name": "r-controlplane", "namespace": "r"},
    "spec": {
        "template": {
            "spec": {
                "imagePullSecrets": [{"name": "platform-regcred"}],
                "containers": [
                    {"name": "mesh", "image": "mesh:1"},
                    {
                        "name": "controlplane",
                        "image": "registry.example/rollbox/controlplane:1",
                        "env": [
                            {"name": f"ROLLBOX_CONTROLPLANE_{name}", "value": value}
                            for name, value in ENVIRONMENT.items()
                        ],
                    },
                ],
            }
        }
    },
}


@dataclass
class Kubelet:
    """Runs pods at once: what a pod sees depends on which one it is.

    Attributes:
        inside: how what must not work ends for a sandbox.
        tells: what every pod says at its end, whatever it was to do; empty: what it saw.
        pods: the manifests that it got, by name.
    """

    api: FakeKubernetes
    inside: Ending = "closed"
    words: str = ""
    tells: str = ""
    pods: dict[str, Json] = field(default_factory=dict)

    async def run(self) -> None:
        while True:
            for kind in [one for one in self.api.objects if one.endswith("/pods")]:
                for pod in [one for one in self.api.objects[kind].values() if "status" not in one]:
                    self.pods[pod["metadata"]["name"]] = pod
                    await self.api.put(kind, {**pod, "status": self._status(pod)})
            await asyncio.sleep(0.01)

    def _status(self, pod: Json) -> Json:
        addresses = {"hostIP": "10.0.0.9", "podIP": "10.1.0.5"}
        arguments = pod["spec"]["containers"][0]["command"][3:]
        if self.tells:
            return {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"message": self.tells}}}]}
        if arguments[0] == "serve":
            return {"phase": "Running", **addresses}
        sandbox = "rollbox.dev/installation" in pod["metadata"]["labels"]
        seen = {way.name: Seen(self._ending(way) if sandbox else "open") for way in loaded(arguments[0])}
        words = self.words or json.dumps({"kernel": "Linux", "seen": plain(seen)})
        ends = [{"name": "target", "state": {"terminated": {"exitCode": 0, "reason": "Completed", "message": words}}}]
        # As kubelets tell it: a pod is over only when its sandbox has been taken apart, too.
        return {"phase": "Running", **addresses, "containerStatuses": ends}

    def _ending(self, way: Way) -> Ending:
        return "open" if way.must_work else self.inside


@asynccontextmanager
async def cluster(api: FakeKubernetes, *, release: bool) -> AsyncIterator[Kubelet]:
    """A cluster with the usual Services, with a release of the chart or without one."""
    names = {"default": {"kubernetes": ("10.96.0.1", 443)}, "r": {"r-ready": ("10.96.0.7", 8082)}}
    names["r"]["r-gateway"] = ("10.96.0.8", 80)
    for namespace, services in names.items():
        api.objects[SERVICES.format(namespace)] = {
            name: {"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": port}]}}
            for name, (address, port) in services.items()
        }
    dns = {"metadata": {"name": "kube-dns"}, "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 53}]}}
    api.objects |= {"/api/v1/services": {"kube-dns": dns}, "/api/v1/namespaces": {}}
    api.objects |= {f"/api/v1/namespaces/{one}/pods": {} for one in ("r", "r-sandboxes", OWN)}
    api.objects[f"/apis/networking.k8s.io/v1/namespaces/{OWN}/networkpolicies"] = {}
    if release:
        api.objects[DEPLOYMENTS]["r-controlplane"] = DEPLOYMENT
    kubelet = Kubelet(api)
    running = asyncio.create_task(kubelet.run())
    try:
        yield kubelet
    finally:
        running.cancel()


@pytest.fixture
def looked(
    api: FakeKubernetes, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[dict[str, CheckResult]]]:
    """What is found, by name; whatever comes of it, no pod and no namespace is left."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "0a0a")

    async def look(image: str = "", runtime_class: str = "gvisor") -> dict[str, CheckResult]:
        async with KubernetesClient.connect(kubeconfig) as client:
            try:
                releases = await client.list("/apis/apps/v1/deployments", {"labelSelector": SELECTOR})
                found = await network.check(client, releases.items, image, runtime_class)
            finally:
                kinds = [one for one in api.objects if one.endswith(("/pods", "/namespaces"))]
                assert not [name for kind in kinds for name in api.objects[kind]]
        assert len({one.name for one in found}) == len(found)
        return {one.name: one for one in found}

    return look


async def test_a_release_is_tried_where_its_sandboxes_run(
    api: FakeKubernetes, looked: Callable[..., Awaitable[dict[str, CheckResult]]]
) -> None:
    async with cluster(api, release=True) as kubelet:
        found = await looked()
    assert all(one.ok for one in found.values())
    assert found.keys() == {
        "API server from r",
        "kubelet of its node from r",
        "metadata service from r",
        "cluster DNS from r",
        "internet from r",
        "gateway from r",
        "readiness port from r",
        "network policies of r",
    }
    assert "10.0.0.9:10250" in found["kubelet of its node from r"].detail
    sandbox, other = kubelet.pods["doctor-0a0a-sandbox"], kubelet.pods["doctor-0a0a-outside"]
    assert (sandbox["metadata"]["namespace"], other["metadata"]["namespace"]) == ("r-sandboxes", "r")
    # Held by the release's policies; and no sandbox in the control plane's eyes, which would remove it.
    assert sandbox["metadata"]["labels"] == {
        "app.kubernetes.io/name": "rollbox-sandbox",
        "rollbox.dev/installation": "r",
    }
    spec = sandbox["spec"]
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["nodeSelector"] == {"pool": "sandboxes"}
    assert spec["tolerations"] == [{"key": "sandboxes", "operator": "Exists"}]
    assert spec["imagePullSecrets"] == [{"name": "regcred"}]
    assert spec["automountServiceAccountToken"] is False
    assert "runtimeClassName" not in other["spec"]
    assert other["spec"]["imagePullSecrets"] == [{"name": "platform-regcred"}]
    assert {one["spec"]["containers"][0]["image"] for one in (sandbox, other)} == {
        "registry.example/rollbox/controlplane:1"
    }


async def test_a_plugin_that_ignores_policies_is_told(
    api: FakeKubernetes, looked: Callable[..., Awaitable[dict[str, CheckResult]]]
) -> None:
    async with cluster(api, release=True) as kubelet:
        kubelet.inside = "open"
        found = await looked()
    assert {name for name, one in found.items() if one.ok} == {"readiness port from r"}
    assert "does not enforce NetworkPolicy" in found["network policies of r"].detail
    assert "such as Cilium" in found["network policies of r"].fix


async def test_before_an_install_it_is_tried_in_a_namespace_of_its_own(
    api: FakeKubernetes, looked: Callable[..., Awaitable[dict[str, CheckResult]]]
) -> None:
    # A new namespace has no service account for a moment.
    refusal = 'error looking up service account x/default: serviceaccount "default" not found'
    api.faults = [Fault("POST", f"{OWN}/pods", 403, "Forbidden", refusal)]
    async with cluster(api, release=False) as kubelet:
        found = await looked("controlplane:1", "")
    assert all(one.ok for one in found.values())
    assert "10.1.0.5:8083" in found["port of another pod from a sandbox"].detail
    assert kubelet.pods.keys() == {"peer", "doctor-0a0a-sandbox", "doctor-0a0a-outside"}
    assert "runtimeClassName" not in kubelet.pods["doctor-0a0a-sandbox"]["spec"]
    ways = loaded(kubelet.pods["doctor-0a0a-sandbox"]["spec"]["containers"][0]["command"][3])
    assert all(way.retry_for_s for way in ways)


async def test_without_a_release_and_an_image_nothing_is_vouched_for(
    api: FakeKubernetes, looked: Callable[..., Awaitable[dict[str, CheckResult]]]
) -> None:
    async with cluster(api, release=False) as kubelet:
        found = await looked()
    assert not found["network policies"].ok
    assert "--image" in found["network policies"].fix
    assert not kubelet.pods


async def test_a_pod_that_does_not_start_or_fails_is_told(
    api: FakeKubernetes,
    looked: Callable[..., Awaitable[dict[str, CheckResult]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster(api, release=True) as kubelet:
        kubelet.words = "no such module"
        found = await looked()
        assert "no such module" in found["network policies of r"].detail
        waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
        pulls = {"name": "target", "image": "i", "state": {"waiting": waiting}}
        monkeypatch.setattr(kubelet, "_status", lambda _: {"phase": "Pending", "containerStatuses": [pulls]})
        found = await looked()
        assert "no such image" in found["network policies of r"].detail
        # No kubelet has heard of it, and there is no more time.
        monkeypatch.setattr(check_pods, "WITHIN_S", 0.0)
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
        monkeypatch.setattr(kubelet, "_status", lambda _: {"phase": "Pending", "conditions": [unscheduled]})
        found = await looked()
    assert not found["network policies of r"].ok
    assert "did not come that far" in found["network policies of r"].detail


def test_the_policies_are_those_of_the_chart() -> None:
    deny, ready = (one["spec"] for one in network_check.policies("n"))
    sandbox = {"matchLabels": {"app.kubernetes.io/name": "rollbox-sandbox", "rollbox.dev/installation": "n"}}
    assert deny == {"podSelector": sandbox, "policyTypes": ["Ingress", "Egress"]}
    assert ready["podSelector"] == sandbox
    assert ready["egress"][0]["to"] == [{"podSelector": {"matchLabels": network_check.PEER}}]
    peer = network_check.peer("n", "peer", "i")
    assert network_check.PEER.items() <= peer["metadata"]["labels"].items()
    assert peer["spec"]["containers"][0]["command"][3:] == ["serve", "$(POD_IP)", "8082", "8083"]
