"""Nodes that give one another layers: only where it was asked for, with nothing but containerd's content to read."""

import base64
import tomllib
from typing import Any

import pytest

from tests.support.helm import ChartError, Manifest, named, notes, of_kind, pods, render
from tests.support.helm_cluster import helm_cluster

ON = ("registry.enabled=true", "registry.peers.enabled=true")
HOST = "rollbox-registry.rollbox.svc.cluster.local:5443"


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render(*ON)


def spec(manifests: list[Manifest]) -> dict[str, Any]:
    found: dict[str, Any] = named(manifests, "DaemonSet", "rollbox-peers")["spec"]["template"]["spec"]
    return found


def secret(manifests: list[Manifest]) -> dict[str, str]:
    data = named(manifests, "Secret", "rollbox-peers")["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def test_without_being_asked_for_there_are_none() -> None:
    assert not of_kind(render("registry.enabled=true"), "DaemonSet")


def test_they_read_containerds_content_and_have_no_power(manifests: list[Manifest]) -> None:
    pod = spec(manifests)
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostPID", "hostIPC", "serviceAccountName"} & pod.keys()
    paths = [one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one]
    assert paths == ["/var/lib/containerd/io.containerd.content.v1.content"]
    (container,) = pod["containers"]
    assert all(one["readOnly"] for one in container["volumeMounts"])
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False


def test_containerd_asks_at_loopback_before_the_registry_and_for_layers_alone(manifests: list[Manifest]) -> None:
    told = tomllib.loads(secret(manifests)["hosts.toml"])
    local, registry = told["host"]
    assert (local, registry) == ("http://127.0.0.1:5448", f"https://{HOST}")
    # What resolves is asked for manifests: the registry judges every pull.
    assert told["host"][local]["capabilities"] == ["pull"]
    assert told["host"][local]["header"]["X-Rollbox-Peers"] == [secret(manifests)["token"]]
    assert told["host"][registry]["capabilities"] == ["pull", "resolve"]
    assert told["server"] == registry
    environment = {one["name"]: one.get("value") for one in spec(manifests)["containers"][0]["env"]}
    # Put together there: an IPv6 address needs brackets.
    assert environment["ROLLBOX_PEERS_SELF"] == ":5447"
    assert environment["ROLLBOX_PEERS_LOCAL"] == "127.0.0.1:5448"
    assert environment["ROLLBOX_PEERS_WITHOUT"] == f"{HOST}/estargz/"
    assert environment["ROLLBOX_PEERS_MEMBERS"] == "dns:rollbox-peers.rollbox.svc.cluster.local:5447"


def test_no_two_programs_take_the_same_port_of_a_node() -> None:
    manifests = render(*ON, "nodeAgent.enabled=true")
    ports = [5448]  # at loopback
    for _, pod in pods(manifests):
        if pod["spec"].get("hostNetwork"):
            ports += [port["containerPort"] for one in pod["spec"]["containers"] for port in one.get("ports", ())]
    assert {5443, 5447} <= {*ports}
    assert len({*ports}) == len(ports)


def test_the_token_is_in_no_config_map(manifests: list[Manifest]) -> None:
    token = secret(manifests)["token"]
    assert token not in "".join(str(one) for one in manifests if one["kind"] != "Secret")
    assert "secret rollbox-peers" in notes(*ON)


def test_certificate_and_token_are_kept(manifests: list[Manifest]) -> None:
    found = named(manifests, "Secret", "rollbox-peers")
    kept = {**found, "metadata": {**found["metadata"], "namespace": "rollbox"}}
    with helm_cluster(kept) as cluster:
        again = secret(render(*ON, cluster=cluster))
    # The other file's content follows from the registry's own.
    assert {**again, "hosts.toml": ""} == {**secret(manifests), "hosts.toml": ""}


def test_a_registry_that_is_there_already_has_none() -> None:
    with pytest.raises(ChartError, match=r"registry\.peers\.enabled needs the chart's own registry"):
        render(*ON, "registry.external.host=registry.example.com")
