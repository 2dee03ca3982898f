"""What `rollbox doctor --cluster` says of a release whose parts, names, limits or clocks are not as they should be."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.doctor.release_checks import (
    answers,
    clocks,
    egress,
    inside,
    names,
    parts,
    programs,
    pull_secrets,
    releases,
    rights,
)
from controlplane.cluster.kubernetes.doctor.releases import Release
from tests.contract.kubernetes.test_network import DEPLOYMENT, cluster
from tests.support.fake_kubernetes import FakeKubernetes

Json = dict[str, Any]
RELEASE = Release.of(DEPLOYMENT)
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
KERNEL = "Linux version 4.19.0-gvisor"


def owner(part: str, image: str = "i:1", version: str = "1", replicas: int = 2, ready: int | None = None) -> Json:
    labels = {parts.COMPONENT: part, parts.VERSION: version}
    template = {"spec": {"containers": [{"name": part, "image": image}]}}
    return {
        "metadata": {"name": f"r-{part}", "labels": labels},
        "spec": {"replicas": replicas, "template": template},
        "status": {"readyReplicas": replicas if ready is None else ready},
    }


def pod(part: str, image: str = "i:1") -> Json:
    containers = [{"name": "mesh", "image": "m:1"}, {"name": part, "image": image}]
    return {"metadata": {"name": f"r-{part}-x", "labels": {parts.COMPONENT: part}}, "spec": {"containers": containers}}


def test_parts_that_are_ready_are_named() -> None:
    found = parts.ready("r", "ns", [owner("gateway"), owner("mirror")])
    assert (found.ok, found.detail, found.fix) == (True, "all pods are ready: gateway, mirror", "")


@pytest.mark.parametrize(
    ("mirror", "said"),
    [
        (owner("mirror", ready=1), "mirror: 1 of 2 ready"),
        (owner("mirror", replicas=0), "mirror: scaled to none"),
        (owner("mirror") | {"status": {"desiredNumberScheduled": 3, "numberReady": 2}}, "mirror: 2 of 3 ready"),
    ],
)
def test_a_part_that_is_not_ready_is_named_with_what_to_do(mirror: Json, said: str) -> None:
    found = parts.ready("r", "ns", [owner("gateway"), mirror])
    assert (found.ok, found.detail) == (False, said)
    assert "kubectl -n ns get pods" in found.fix


def test_parts_of_one_version_that_run_what_they_name_are_well() -> None:
    found = parts.versions("r", "ns", [owner("gateway"), owner("dns")], [pod("gateway"), pod("dns")])
    assert (found.ok, found.fix) == (True, "")


def test_versions_that_differ_are_told_by_part_and_by_pod() -> None:
    found = parts.versions("r", "ns", [owner("gateway"), owner("dns", version="2")], [pod("gateway", "i:0")])
    assert found.detail == "the parts are of the versions 1, 2; r-gateway-x runs i:0, and gateway names i:1"
    assert "helm rollback" in found.fix


def sandbox(name: str, address: str | None) -> Json:
    return {"metadata": {"name": name}, "status": {"podIP": address} if address else {}}


def served(name: str, *addresses: str) -> Json:
    return {"endpoints": [{"hostname": name, "addresses": [one]} for one in addresses]}


def test_names_that_lead_to_their_pods_agree_and_those_that_are_not_there_yet_too() -> None:
    found = names.agree("r", [served("a", "10.0.0.1")], [sandbox("a", "10.0.0.1"), sandbox("b", "10.0.0.2")])
    assert (found.ok, found.detail) == (True, "the names of 2 sandboxes say no address that is not theirs")


def test_a_name_that_leads_elsewhere_is_told_with_both_addresses() -> None:
    found = names.agree("r", [served("a", "10.0.0.1"), served("a", "10.9.9.9")], [sandbox("a", "10.0.0.1")])
    assert found.detail == "a is at 10.0.0.1, and its name says 10.0.0.1, 10.9.9.9"
    assert "EndpointSlices" in found.fix


def test_a_sandbox_that_has_long_been_ready_has_a_name() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pod = sandbox("a", "10.0.0.1")
    pod["status"]["conditions"] = [ready]
    now = datetime(2026, 1, 1, 0, 0, 31, tzinfo=UTC)
    assert names.agree("r", [], [pod], since=names.settled(now)).detail == "a is at 10.0.0.1, and has no name"
    assert names.agree("r", [], [pod], since=names.settled(now - timedelta(seconds=2))).ok
    assert names.agree("r", [served("a", "10.0.0.1")], [pod], since=names.settled(now)).ok
    assert names.agree("r", [], [pod]).ok, "this release has no names"


def ended(reason: str, code: int, **told: object) -> Json:
    message = json.dumps(told) if told else ""
    return {"containerStatuses": [{"state": {"terminated": {"reason": reason, "exitCode": code, "message": message}}}]}


@pytest.mark.parametrize(
    ("status", "kernel", "limits"),
    [
        (ended("OOMKilled", 137, kernel=KERNEL), True, True),
        (ended("Error", 137, kernel=KERNEL), True, True),
        (ended("Completed", 0, kernel=KERNEL, took_mebibytes=512), True, False),
        (ended("OOMKilled", 137, kernel="Linux version 6.1.0 (debian)"), False, True),
    ],
)
def test_a_pod_that_takes_too_much_shows_whether_limits_hold_and_which_kernel_it_has(
    status: Json, kernel: bool, limits: bool
) -> None:
    found = {one.name: one for one in inside.judged(RELEASE, "n1", status, "gVisor")}
    assert (found["kernel of r"].ok, found["limits of r"].ok) == (kernel, limits)
    assert bool(found["limits of r"].fix) is not limits


def test_a_pod_that_tells_nothing_has_tried_nothing() -> None:
    (found,) = inside.judged(RELEASE, "n1", ended("Error", 1), "gVisor")
    assert (found.ok, found.detail) == (False, "not tried: the pod on n1 ended with Error 1")
    assert "another version" in found.fix


def test_no_kernel_is_asked_for_where_none_is_required() -> None:
    found = [*inside.judged(RELEASE, "n1", ended("OOMKilled", 137, kernel="Linux"), "any")]
    assert all(one.ok for one in found)


@pytest.mark.parametrize(
    ("systrap", "call_ns", "ok", "said"),
    [
        (True, 900, True, "on n1: systrap; a system call takes 0.9 µs"),
        # Others take the processor.
        (True, 20_000, True, "on n1: systrap; a system call takes 20.0 µs"),
        (False, 400, True, "on n1: not systrap with its rewriting of calls, so KVM; a system call takes 0.4 µs"),
        (False, 14_000, False, "calls are too slow; a system call takes 14.0 µs"),
    ],
)
def test_the_platform_is_told_from_what_a_pod_sees(systrap: bool, call_ns: int, ok: bool, said: str) -> None:
    status = ended("OOMKilled", 137, kernel=KERNEL, platform={"systrap": systrap, "call_ns": call_ns})
    found = {one.name: one for one in inside.judged(RELEASE, "n1", status, "gVisor")}["platform of r"]
    assert (found.ok, found.detail.endswith(said)) == (ok, True)
    assert bool(found.fix) is not ok


def test_the_pod_that_sees_gvisors_settings_may_write_to_its_root_as_sandboxes_may() -> None:
    (container,) = inside.manifest(RELEASE, "doctor-x")["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(("root", "ok"), [("overlay", True), ("9p", False), ("", False)])
def test_a_disk_limit_that_nothing_counts_is_told_from_the_root_that_a_pod_sees(root: str, ok: bool) -> None:
    status = ended("OOMKilled", 137, kernel=KERNEL, platform={"systrap": True, "call_ns": 900, "root": root})
    found = {one.name: one for one in inside.judged(RELEASE, "n1", status, "gVisor")}["disk limit of r"]
    assert (found.ok, found.needed, "overlay2" in found.detail, "overlay2" in found.fix) == (ok, ok, not ok, not ok)


def test_an_image_of_before_does_not_tell_its_root() -> None:
    status = ended("OOMKilled", 137, kernel=KERNEL, platform={"systrap": True, "call_ns": 900})
    assert "disk limit of r" not in {one.name for one in inside.judged(RELEASE, "n1", status, "gVisor")}


def test_no_platform_is_told_of_another_kernel() -> None:
    status = ended("OOMKilled", 137, kernel="Linux", platform={"systrap": False, "call_ns": 100})
    assert "platform of r" not in {one.name for one in inside.judged(RELEASE, "n1", status, "any")}


def gateway(**environment: str) -> Json:
    env = [{"name": name, "value": value} for name, value in environment.items()]
    return {"spec": {"template": {"spec": {"containers": [{"name": "gateway", "env": env}]}}}}


def test_the_dns_that_gateways_ask_is_in_their_settings() -> None:
    assert answers.settings(gateway(**{answers.ZONE: "s.svc.cluster.local", answers.SHARDS: "4"})) == (
        "s.svc.cluster.local",
        4,
    )
    assert answers.settings(gateway(OTHER="1")) is None


def test_a_pod_is_named_like_a_sandbox_and_another_one_asks_for_it_like_a_gateway() -> None:
    named = answers.named(RELEASE, "doctor-x", 4)
    shard = named["metadata"]["labels"]["rollbox.dev/shard"]
    assert (named["spec"]["hostname"], named["spec"]["subdomain"]) == ("doctor-x", f"shard-{shard}")
    assert "rollbox.dev/sandbox" not in named["metadata"]["labels"]
    wanted = answers.expected("zone", [{**named, "status": {"podIP": "10.0.0.1"}}, {**named, "status": {}}])
    assert wanted == {f"doctor-x.shard-{shard}.zone": "10.0.0.1"}
    pod = {"metadata": {"name": "doctor-x", "uid": "u"}, "status": {"podIP": "10.0.0.1"}}
    given = answers.endpoints(RELEASE, "doctor-x", 4, pod)
    assert given["metadata"]["labels"]["kubernetes.io/service-name"] == f"shard-{shard}"
    assert given["endpoints"] == [{"addresses": ["10.0.0.1"], "hostname": "doctor-x"}]
    asks = answers.asking(RELEASE, "doctor-y", "10.96.0.9", list(wanted))
    assert asks["metadata"]["labels"]["app.kubernetes.io/component"] == "gateway"
    # So that no Service leads to it.
    assert asks["spec"]["readinessGates"]


@pytest.mark.parametrize(
    ("told", "ok", "said"),
    [
        ({"own.z": ["10.0.0.1"], "sb.z": ["10.0.0.2"]}, True, "with the addresses of 2 pods"),
        # A sandbox may end at any moment.
        ({"own.z": ["10.0.0.1"], "sb.z": []}, True, "with the addresses of 2 pods"),
        ({"own.z": [], "sb.z": []}, False, "own is at 10.0.0.1, and it answers that there is no such name"),
        ({"own.z": None, "sb.z": None}, False, "it answers nothing to a pod with a gateway's labels"),
        ({"own.z": None, "sb.z": ["10.0.0.2"]}, False, "own is at 10.0.0.1, and it answers nothing"),
        (
            {"own.z": ["10.0.0.1"], "sb.z": ["10.0.0.2", "10.9.9.9"]},
            False,
            "sb is at 10.0.0.2, and it answers 10.0.0.2, 10.9.9.9",
        ),
    ],
)
def test_answers_are_compared_with_addresses(told: dict[str, object], ok: bool, said: str) -> None:
    found = answers.judged(RELEASE, "own.z", {"own.z": "10.0.0.1", "sb.z": "10.0.0.2"}, ended("Completed", 0, **told))
    assert (found.ok, said in found.detail) == (ok, True)
    assert ("r-dns" in found.fix) is not ok


def test_a_pod_that_does_not_tell_its_answers_has_tried_nothing() -> None:
    found = answers.judged(RELEASE, "own.z", {"own.z": "10.0.0.1"}, ended("Error", 1))
    assert (found.ok, found.detail) == (False, "not tried: the pod that asks ended with no message")


@pytest.mark.parametrize(
    ("off_s", "silent", "ok", "said"),
    [
        ({"a": 0.4, "b": -0.2}, 0, True, "2 nodes are within 0.4 s of this machine"),
        ({"a": 0.1, "b": -31.0}, 0, False, "b is 31.0 s behind"),
        ({"a": 12.0}, 1, False, "a is 12.0 s ahead; 1 did not renew their lease in 15 s"),
        ({}, 2, False, "no node has renewed its lease; 2 did not renew their lease in 15 s"),
    ],
)
def test_clocks_that_are_off_are_told_by_node(off_s: dict[str, float], silent: int, ok: bool, said: str) -> None:
    found = clocks.judged(off_s, silent)
    assert (found.ok, found.detail) == (ok, said)


def test_the_rights_that_are_asked_for_are_read_as_sentences() -> None:
    told = [str(one) for one in rights.needed(RELEASE)]
    assert "create pods in r-sandboxes" in told
    assert "list leases.coordination.k8s.io in kube-node-lease" in told
    assert len(told) == len(set(told))


async def test_image_pull_secrets_that_cannot_be_read_are_named_with_their_owners(
    api: FakeKubernetes, kubeconfig: Path
) -> None:
    release = replace(RELEASE, pull_secrets=["all"], owner_pull_secrets={"alice": ["alices"], "bob": ["bobs"]})
    text = base64.b64encode(b'{"auths": {}}').decode()
    api.objects["/api/v1/namespaces/r-sandboxes/secrets"] = {
        "all": {"metadata": {"name": "all"}, "data": {".dockerconfigjson": text}},
        "bobs": {"metadata": {"name": "bobs"}, "data": {}},
    }
    async with KubernetesClient.connect(kubeconfig) as client:
        (found,) = await pull_secrets.check(client, release)
        assert not found.ok
        assert found.detail == (
            "in r-sandboxes: alices (owner alice): there is none of this name; "
            "bobs (owner bob): it has no .dockerconfigjson that can be read"
        )
        assert "kubectl create secret docker-registry NAME -n r-sandboxes" in found.fix
        (well,) = await pull_secrets.check(client, replace(release, owner_pull_secrets={}))
        assert (well.ok, well.detail, well.fix) == (True, "the 1 that it names can be read", "")
        assert await pull_secrets.check(client, replace(release, pull_secrets=[], owner_pull_secrets={})) == []


def test_what_no_sandbox_may_reach_is_read_from_the_cluster_with_public_addresses() -> None:
    slices = [{"ports": [{"port": 6443}], "endpoints": [{"addresses": ["203.0.113.7"]}]}]
    addresses = [{"type": "InternalIP", "address": "10.0.0.9"}, {"type": "ExternalIP", "address": "203.0.113.9"}]
    nodes = [{"status": {"addresses": [*addresses, {"type": "Hostname", "address": "n1"}]}}]
    servers = [{"spec": {"clusterIP": "10.96.0.10"}}]
    assert egress.inside(("10.96.0.1", 443), slices, servers, ("10.96.0.8", 80), nodes) == {
        "API server": ("10.96.0.1", 443),
        "API server's own address": ("203.0.113.7", 6443),
        "gateway": ("10.96.0.8", 80),
        "cluster DNS": ("10.96.0.10", 53),
        "kubelet": ("10.0.0.9", 10250),
        "kubelet, by its node's public address": ("203.0.113.9", 10250),
    }


def test_a_pod_with_the_first_api_key_asks_the_gateway_for_a_sandbox() -> None:
    release = replace(RELEASE, api_keys="r-api-keys")
    pod = egress.manifest(release, "doctor-x", {"gateway": ("10.96.0.8", 80)}, "index.test:443")
    (container,) = pod["spec"]["containers"]
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert (told["ROLLBOX_URL"], told["PROBE"], told["IMAGE"]) == (
        "http://10.96.0.8:80",
        "index.test:443",
        RELEASE.image,
    )
    assert pod["spec"]["volumes"] == [{"name": "keys", "secret": {"secretName": "r-api-keys"}}]
    assert pod["metadata"]["namespace"] == "r"


@pytest.mark.parametrize(("probe", "names"), [("a:1", ["refusal"]), ("", ["refusal", "allowed host"])])
def test_what_the_pod_has_found_is_told_by_check(probe: str, names: list[str]) -> None:
    wrong = {"name": "refusal", "ok": False, "detail": "200", "fix": "See."}
    status = {"containerStatuses": [{"state": {"terminated": {"message": json.dumps([wrong])}}}]}
    found = [*egress.judged(RELEASE, status, probe)]
    assert [one.name for one in found] == [f"egress of r: {name}" for name in names]
    assert (found[0].ok, found[0].detail, found[0].fix) == (False, "200", "See.")


async def test_a_sandbox_looks_at_what_programs_may_do_and_none_of_that_is_needed(
    api: FakeKubernetes, kubeconfig: Path
) -> None:
    release = replace(RELEASE, api_keys="r-api-keys")
    wrong = {"name": "setuid programs", "ok": False, "detail": "change no user", "fix": "allow-suid"}
    async with cluster(api, release=True) as kubelet, KubernetesClient.connect(kubeconfig) as client:
        kubelet.tells = json.dumps([wrong])
        (found,) = await releases._programs(client, release)
        (pod,) = kubelet.pods.values()
    assert (found.name, found.ok, found.fix, found.needed) == ("setuid programs of r", False, "allow-suid", False)
    (container,) = pod["spec"]["containers"]
    assert container["command"][:3] == ["python3", "-m", "rollbox.program_check"]
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert (told["ROLLBOX_URL"], told["IMAGE"]) == ("http://10.96.0.8:80", RELEASE.image)
    (untold,) = programs.judged(release, {"containerStatuses": [{"state": {"terminated": {"reason": "Error"}}}]})
    assert (untold.name, untold.ok, untold.detail) == ("programs of r", False, "not tried: the pod ended with Error")


@pytest.mark.parametrize("message", ["", "Traceback", '{"name": 1}', '[{"name": "a"}]'])
def test_a_pod_that_tells_no_findings_has_tried_nothing_of_egress(message: str) -> None:
    end = {"reason": "Error", "message": message}
    found = [*egress.judged(RELEASE, {"containerStatuses": [{"state": {"terminated": end}}]}, "a:1")]
    assert (found[-1].name, found[-1].ok, found[-1].detail[:9]) == ("egress of r", False, "not tried")


async def test_a_release_without_egress_is_one_line_and_one_with_it_is_tried_from_a_sandbox(
    api: FakeKubernetes, kubeconfig: Path
) -> None:
    release = replace(RELEASE, api_keys="r-api-keys")
    async with cluster(api, release=True) as kubelet, KubernetesClient.connect(kubeconfig) as client:
        (absent,) = await releases._egress(client, release, "")
        assert (absent.name, absent.ok, absent.detail) == ("egress of r", True, egress.ABSENT)
        about = {"name": "r-egress", "annotations": {egress.PROBE: "index.test:443"}}
        api.objects["/apis/apps/v1/namespaces/r/deployments"] = {"r-egress": {"metadata": about, "spec": {}}}
        api.objects[SLICES] = {}
        well = {"name": "refusal", "ok": True, "detail": "403", "fix": ""}
        kubelet.tells = json.dumps([well])
        (found,) = await releases._egress(client, release, "")
        assert (found.name, found.ok) == ("egress of r: refusal", True)
        (pod,) = kubelet.pods.values()
        told = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert told["PROBE"] == "index.test:443"
        assert json.loads(told["INSIDE"])["gateway"] == ["10.96.0.8", 80]
        kubelet.pods.clear()
        await releases._egress(client, release, "other.test:80")
        (pod,) = kubelet.pods.values()
        assert {"name": "PROBE", "value": "other.test:80"} in pod["spec"]["containers"][0]["env"]
