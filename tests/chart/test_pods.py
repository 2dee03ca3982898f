"""Platform pods: bounded, without powers, and rolled when what they read changes."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509 import load_pem_x509_certificate

from tests.support.helm import Manifest, matches, named, of_kind, pods, render


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render()


def test_every_container_is_bounded(manifests: list[Manifest]) -> None:
    for name, pod in pods(manifests):
        for container in pod["spec"]["containers"]:
            for side in ("requests", "limits"):
                assert {"cpu", "memory"} <= container["resources"][side].keys(), (name, side)


def test_no_platform_pod_has_powers(manifests: list[Manifest]) -> None:
    for name, pod in pods(manifests):
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] == 65532, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["spec"]["containers"]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["readOnlyRootFilesystem"] is True, name
            assert own["capabilities"]["drop"] == ["ALL"], name
            # What the published CoreDNS has in its file.
            assert own["capabilities"].get("add", []) == (["NET_BIND_SERVICE"] if "dns" in name else []), name


def test_pods_that_call_no_api_server_have_no_token(manifests: list[Manifest]) -> None:
    for name, pod in pods(manifests):
        has_account = "serviceAccountName" in pod["spec"]
        assert has_account or pod["spec"]["automountServiceAccountToken"] is False, name


def test_long_lived_pods_are_probed_and_outlive_their_drain(manifests: list[Manifest]) -> None:
    for component in ("gateway", "controlplane"):
        pod = named(manifests, "Deployment", f"rollbox-{component}")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
        assert pod["terminationGracePeriodSeconds"] > 60 + container["lifecycle"]["preStop"]["sleep"]["seconds"]
    gateway = named(manifests, "Deployment", "rollbox-gateway")["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "ROLLBOX_GATEWAY_DRAIN_MS", "value": "60000"} in gateway["env"]


def test_no_upgrade_takes_the_last_replica(manifests: list[Manifest]) -> None:
    for component in ("gateway", "controlplane", "dns"):
        strategy = named(manifests, "Deployment", f"rollbox-{component}")["spec"]["strategy"]
        assert strategy["rollingUpdate"]["maxUnavailable"] == 0
        budget = named(manifests, "PodDisruptionBudget", f"rollbox-{component}")["spec"]
        labels = named(manifests, "Deployment", f"rollbox-{component}")["spec"]["template"]["metadata"]["labels"]
        assert budget["maxUnavailable"] == 1
        assert matches(budget["selector"], labels)


def test_services_and_probes_name_ports_that_exist(manifests: list[Manifest]) -> None:
    by_labels = [(pod["metadata"].get("labels", {}), pod["spec"]["containers"]) for _, pod in pods(manifests)]
    for service in of_kind(manifests, "Service"):
        if service["metadata"].get("namespace"):
            continue
        for port in service["spec"]["ports"]:
            behind = [c for labels, c in by_labels if matches({"matchLabels": service["spec"]["selector"]}, labels)]
            assert behind, service["metadata"]["name"]
            assert all(port["targetPort"] in _port_names(c) for c in behind), (service["metadata"]["name"], port)


def _port_names(containers: list[Any]) -> set[str]:
    return {port["name"] for one in containers for port in one.get("ports", [])}


def test_pods_roll_when_what_they_read_changes() -> None:
    keys = ["existingSecrets.signingKey=k", "redis.url=redis://one:6379"]
    before, same = render(*keys), render(*keys)
    other = render(*keys, "apiKeys.me=another-key-of-length", "sandboxes.namespace=elsewhere")
    for name in ("rollbox-controlplane", "rollbox-dns"):
        marks = [_annotations(one, name) for one in (before, same, other)]
        if name == "rollbox-dns":
            assert marks[0] == marks[1]
        assert marks[0] != marks[2]


def _annotations(manifests: list[Manifest], name: str) -> Any:
    return named(manifests, "Deployment", name)["spec"]["template"]["metadata"]["annotations"]


def test_the_generated_certificate_is_of_the_generated_key(manifests: list[Manifest]) -> None:
    secret = {k: base64.b64decode(v) for k, v in named(manifests, "Secret", "rollbox-signing-key")["data"].items()}
    key = serialization.load_pem_private_key(secret["tls.key"], password=None)
    assert isinstance(key, Ed25519PrivateKey)
    assert load_pem_x509_certificate(secret["tls.crt"]).public_key() == key.public_key()


def test_the_store_address_has_the_password_of_the_store(manifests: list[Manifest]) -> None:
    secret = {k: base64.b64decode(v).decode() for k, v in named(manifests, "Secret", "rollbox-redis")["data"].items()}
    assert f"requirepass {secret['password']}\n" in secret["redis.conf"] + "\n"
    assert f":{secret['password']}@rollbox-redis." in secret["url"]


def test_only_gateways_hold_the_key_of_settings(manifests: list[Manifest]) -> None:
    key = base64.b64decode(named(manifests, "Secret", "rollbox-settings-key")["data"]["key"])
    assert len(key) >= 32
    having = [name for name, pod in pods(manifests) if "rollbox-settings-key" in str(pod["spec"])]
    assert having == ["Deployment rollbox-gateway"]


def test_only_the_control_plane_holds_the_signing_key(manifests: list[Manifest]) -> None:
    gateway = named(manifests, "Deployment", "rollbox-gateway")["spec"]["template"]["spec"]
    items = {volume["secret"]["secretName"]: volume["secret"]["items"] for volume in gateway["volumes"]}
    assert items["rollbox-signing-key"] == [{"key": "tls.crt", "path": "tls.crt"}]
    assert items.keys() == {"rollbox-signing-key", "rollbox-settings-key"}
    operator = named(manifests, "Deployment", "rollbox-operator")["spec"]["template"]["spec"]
    assert [volume["name"] for volume in operator["volumes"]] == ["tmp"]
    (container,) = operator["containers"]
    assert not [one["name"] for one in container["env"] if "KEY" in one["name"]]
    serving = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"ROLLBOX_CONTROLPLANE_API_KEYS_FILE", "ROLLBOX_CONTROLPLANE_SIGNING_KEY_FILE"} < {
        one["name"] for one in serving
    }


def test_operators_are_told_to_the_control_plane_only_when_they_are_named() -> None:
    def environment(*settings: str) -> dict[str, str]:
        deployment = named(render(*settings), "Deployment", "rollbox-controlplane")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return {one["name"]: one.get("value", "") for one in container["env"]}

    assert "ROLLBOX_CONTROLPLANE_OPERATORS" not in environment()
    told = environment("controlplane.operators[0]=me", "controlplane.operators[1]=ops")
    assert told["ROLLBOX_CONTROLPLANE_OPERATORS"] == "me,ops"


def test_the_console_is_served_unless_it_is_switched_off() -> None:
    for settings, told in (((), "on"), (("controlplane.console=false",), "off")):
        deployment = named(render(*settings), "Deployment", "rollbox-controlplane")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert {"name": "ROLLBOX_CONTROLPLANE_CONSOLE", "value": told} in container["env"]


def test_the_control_plane_knows_where_any_gateway_answers() -> None:
    for settings, port in (((), 80), (("gateway.service.port=8000",), 8000)):
        rendered = render(*settings)
        service = named(rendered, "Service", "rollbox-gateway")
        assert [one["port"] for one in service["spec"]["ports"]] == [port]
        (container,) = named(rendered, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"]
        (url,) = [one["value"] for one in container["env"] if one["name"] == "ROLLBOX_CONTROLPLANE_GATEWAY_URL"]
        assert url.startswith("http://rollbox-gateway.")
        assert url.endswith(f":{port}")


def test_a_domain_for_ports_reaches_who_serves_them_and_who_names_them() -> None:
    for values, expected in (((), {}), (("gateway.portsDomain=p.example.com",), {"p.example.com"})):
        rendered = render(*values)
        for component in ("gateway", "controlplane"):
            pod = named(rendered, "Deployment", f"rollbox-{component}")["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            found = {one["value"] for one in container["env"] if one["name"].endswith("_PORTS_DOMAIN")}
            assert found == set(expected), component
