"""The private registry of the chart: what is there with it and without, who may do what, and what upgrades keep."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, Final

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.support.helm import ChartError, Manifest, named, notes, of_kind, render
from tests.support.helm_cluster import helm_cluster

ON: Final = ("registry.enabled=true", "registry.addresses[0]=10.1.2.3", "registry.addresses[1]=registry.example.com")
HOST: Final = "rollbox-registry.rollbox.svc.cluster.local:5443"
EXTERNAL: Final = (
    "registry.enabled=true",
    "registry.external.host=registry.example.com",
    "registry.external.existingSecret=account",
)


def secret(manifests: list[Manifest], name: str) -> dict[str, str]:
    data: dict[str, str] = named(manifests, "Secret", name)["data"]
    return {key: base64.b64decode(text).decode() for key, text in data.items()}


def container(manifests: list[Manifest], kind: str, name: str, which: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = named(manifests, kind, name)["spec"]["template"]["spec"]["containers"][which]
    return found


def environment(manifests: list[Manifest], name: str) -> dict[str, str]:
    return {
        one["name"].split("_", 2)[2]: one.get("value", "") for one in container(manifests, "Deployment", name)["env"]
    }


def certificate(text: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(text.encode())


def test_there_is_none_unless_it_is_asked_for() -> None:
    manifests = render()
    assert not [
        one for one in manifests if "registry" in one["metadata"]["name"] or "mirror" in one["metadata"]["name"]
    ]
    assert not {"REGISTRY", "MIRROR"} & environment(manifests, "rollbox-controlplane").keys()
    assert "certs.d" not in notes()


def test_control_plane_and_mirror_know_where_it_is_and_nodes_read_with_an_account() -> None:
    manifests = render(*ON, "sandboxes.imagePullSecrets[0]=mine")
    plane, mirror = environment(manifests, "rollbox-controlplane"), environment(manifests, "rollbox-mirror")
    assert plane["REGISTRY"] == HOST
    assert plane["MIRROR"] == "rollbox-mirror.rollbox.svc.cluster.local:8085"
    assert mirror["REGISTRY"] == HOST.replace("5443", "5444")
    assert plane["IMAGE_PULL_SECRETS"] == "mine,rollbox-registry-pull"
    pull = json.loads(secret(manifests, "rollbox-registry-pull")[".dockerconfigjson"])
    assert list(pull["auths"]) == [HOST]
    assert named(manifests, "Secret", "rollbox-registry-pull")["metadata"]["namespace"] == "rollbox-sandboxes"


def test_pods_that_read_what_is_generated_are_restarted_when_it_is_renewed() -> None:
    manifests = render(*ON)
    kept = secret(manifests, "rollbox-registry-authority")
    registry = secret(manifests, "rollbox-registry")
    for kind, name, key, parts in (
        ("Deployment", "rollbox-mirror", "certificate", (kept["tls.crt"], kept["push"], kept["commits.crt"])),
        (
            "StatefulSet",
            "rollbox-registry",
            "config",
            (registry["read.yaml"], registry["write.yaml"], registry["tls.crt"], kept["commits.crt"]),
        ),
    ):
        stamped = named(manifests, kind, name)["spec"]["template"]["metadata"]["annotations"][f"rollbox.dev/{key}"]
        assert stamped == hashlib.sha256("".join(parts).encode()).hexdigest()[:16], name


def test_certificates_are_for_the_names_that_are_used() -> None:
    manifests = render(*ON)
    server = certificate(secret(manifests, "rollbox-registry")["tls.crt"])
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert HOST.partition(":")[0] in names.get_values_for_type(x509.DNSName)
    assert "registry.example.com" in names.get_values_for_type(x509.DNSName)
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.1.2.3"]
    authority = certificate(named(manifests, "ConfigMap", "rollbox-registry-nodes")["data"]["ca.crt"])
    for name in ("rollbox-mirror-server", "rollbox-mirror-client"):
        certificate(secret(manifests, name)["tls.crt"]).verify_directly_issued_by(authority)
    server.verify_directly_issued_by(authority)
    (told,) = certificate(secret(manifests, "rollbox-mirror-client")["tls.crt"]).subject.get_attributes_for_oid(
        NameOID.COMMON_NAME
    )
    assert told.value == environment(manifests, "rollbox-mirror")["CLIENT"]


def test_nodes_read_and_only_the_mirror_writes() -> None:
    manifests = render(*ON)
    own = secret(manifests, "rollbox-registry")
    read, write = (yaml.safe_load(own[name]) for name in ("read.yaml", "write.yaml"))
    assert read["storage"]["maintenance"]["readonly"]["enabled"] is True
    assert write["storage"]["maintenance"]["readonly"]["enabled"] is False
    assert (read["http"]["addr"], write["http"]["addr"]) == (":5443", ":5444")
    # Each has an account that the other does not take (`internal/accounts` writes the files).
    assert read["auth"]["htpasswd"]["path"] == "/accounts/readers"
    assert write["auth"]["htpasswd"]["path"] == "/accounts/htpasswd"
    passwords = secret(manifests, "rollbox-registry-accounts")
    assert secret(manifests, "rollbox-registry-push")["account"] == f"push:{passwords['push']}"
    assert passwords["push"] != passwords["pull"]


def test_only_what_hashes_the_passwords_sees_them() -> None:
    pod = named(render(*ON), "StatefulSet", "rollbox-registry")["spec"]["template"]["spec"]
    (makes,) = pod["initContainers"]
    assert makes["command"] == ["/rollbox-collector", "accounts", "/etc/rollbox/accounts", "/accounts"]
    for one in (makes, *pod["containers"]):
        mounts = {mount["name"]: mount.get("readOnly", False) for mount in one["volumeMounts"]}
        assert ("passwords" in mounts) == (one is makes), one["name"]
        assert mounts.get("accounts") == {"accounts": False, "collector": None}.get(one["name"], True), one["name"]


def test_recorded_copies_have_a_limit_where_something_can_remove_them() -> None:
    external = ("registry.external.host=r.example.com:5000", "registry.external.existingSecret=account")
    limit = "registry.recordedGibibytesPerOwner=2"
    for more in [(), external, (*external, "nodeAgent.enabled=true")]:
        manifests = render(*ON, limit, *more)
        plane = environment(manifests, "rollbox-controlplane")
        assert plane["RECORDED_BYTES"] == str(2 << 30), more
        # By what sees its files, else by its API, with the account.
        assert ("COLLECTOR" in plane, "REGISTRY_PUSH" in plane) == (not more, bool(more)), more
        pod = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]
        secrets = {one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
        assert secrets.get("registry") == ("account" if more else None), more
        (container,) = pod["containers"]
        assert ("registry" in {one["name"] for one in container["volumeMounts"]}) == bool(more)


def test_the_collector_sees_its_files_and_answers_the_control_plane_alone() -> None:
    manifests = render(
        *ON,
        "registry.collectorPort=7000",
        "registry.budget=200Gi",
        "registry.whenFull=fail",
        "registry.recordedGibibytesPerOwner=2",
    )
    plane = environment(manifests, "rollbox-controlplane")
    name = HOST.partition(":")[0]
    asked = ("COLLECTOR", "COLLECTOR_NAME", "REGISTRY_BUDGET", "REGISTRY_WHEN_FULL", "RECORDED_BYTES")
    told = {one: plane[one] for one in asked}
    assert told == {
        "COLLECTOR": f"{name}:7000",
        "COLLECTOR_NAME": name,
        "REGISTRY_BUDGET": "200Gi",
        "REGISTRY_WHEN_FULL": "fail",
        "RECORDED_BYTES": str(2 << 30),
    }
    pod = named(manifests, "StatefulSet", "rollbox-registry")["spec"]["template"]["spec"]
    (collector,) = [one for one in pod["containers"] if one["name"] == "collector"]
    settings = {one["name"].removeprefix("ROLLBOX_COLLECTOR_"): one["value"] for one in collector["env"]}
    assert (settings["LISTEN"], settings["FOLDER"]) == ("0.0.0.0:7000", "/data")
    client = certificate(secret(manifests, "rollbox-mirror-client")["tls.crt"])
    names = client.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert settings["CLIENT"] in names.get_values_for_type(x509.DNSName)
    # Its key, certificate and authority, and not the accounts that push and pull.
    (tls,) = [one for one in pod["volumes"] if one["name"] == "tls"]
    assert {one["key"] for one in tls["secret"]["items"]} == {"tls.crt", "tls.key", "ca.crt"}
    assert {one["name"] for one in collector["volumeMounts"]} == {"tls", "data"}
    own = secret(manifests, "rollbox-registry")
    certificate(own["tls.crt"]).verify_directly_issued_by(certificate(own["ca.crt"]))


@pytest.mark.parametrize(("size", "size_bytes"), [("100Gi", 100 << 30), ("1.5Gi", 3 << 29), ("2T", 2 * 10**12)])
def test_without_a_volume_it_may_have_what_its_pod_may_and_with_one_all_of_that(size: str, size_bytes: int) -> None:
    def capacity(volume: str) -> str:
        chosen = (f"registry.persistence.enabled={volume}", f"registry.persistence.size={size}")
        pod = named(render(*ON, *chosen), "StatefulSet", "rollbox-registry")["spec"]["template"]["spec"]
        (collector,) = [one for one in pod["containers"] if one["name"] == "collector"]
        found = {one["name"]: one["value"] for one in collector["env"]}
        return str(found.get("ROLLBOX_COLLECTOR_CAPACITY_BYTES", ""))

    assert (capacity("false"), capacity("true")) == (str(size_bytes), "")


@pytest.mark.parametrize("wrong", ["budget=96%", "budget=200GB", "whenFull=wait", "collectorPort=0"])
def test_a_bad_budget_is_refused(wrong: str) -> None:
    with pytest.raises(ChartError, match=wrong.partition("=")[0]):
        render(*ON, f"registry.{wrong}")


def test_a_registry_of_somebody_else_has_no_collector() -> None:
    assert not {"COLLECTOR", "REGISTRY_BUDGET"} & environment(render(*EXTERNAL), "rollbox-controlplane").keys()


def test_the_authoritys_key_is_in_no_pod() -> None:
    manifests = render(*ON)
    mounted = {
        volume["secret"]["secretName"]
        for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job")
        for one in of_kind(manifests, kind)
        for volume in one["spec"]["template"]["spec"].get("volumes", ())
        if "secret" in volume
    }
    assert "rollbox-registry" in mounted
    assert "rollbox-registry-authority" not in mounted


def test_its_pod_is_in_the_nodes_network_and_has_no_other_power() -> None:
    pod = named(render(*ON), "StatefulSet", "rollbox-registry")["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    for one in pod["containers"]:
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert one["securityContext"]["readOnlyRootFilesystem"] is True
        program = "mirror" if one["name"] == "collector" else "distribution"
        assert one["image"].startswith(f"registry.example.com/rollbox/{program}:")
    (data,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "data"]
    assert (pod["containers"][0]["name"], data["readOnly"]) == ("read", True)


def test_an_upgrade_keeps_what_was_generated_and_a_new_address_signs_anew() -> None:
    first = render(*ON)
    kept = [named(first, "Secret", "rollbox-registry-authority")]
    kept[0]["metadata"]["namespace"] = "rollbox"
    with helm_cluster(*kept) as cluster:
        same = render(*ON, cluster=cluster)
        other = render(*ON[:2], cluster=cluster)
    parts = ("registry-authority", "registry", "registry-accounts", "mirror-client", "registry-pull")
    for name in (f"rollbox-{part}" for part in parts):
        assert secret(same, name) == secret(first, name), name
    assert secret(other, "rollbox-registry-accounts") == secret(first, "rollbox-registry-accounts")
    before, after = secret(first, "rollbox-registry"), secret(other, "rollbox-registry")
    assert after["tls.crt"] != before["tls.crt"]
    authority = certificate(named(first, "ConfigMap", "rollbox-registry-nodes")["data"]["ca.crt"])
    certificate(after["tls.crt"]).verify_directly_issued_by(authority)


def test_nodes_are_told_how_to_find_it() -> None:
    data = named(render(*ON), "ConfigMap", "rollbox-registry-nodes")["data"]
    assert data["host"] == HOST
    assert data["hosts.toml"] == (
        'server = "https://10.1.2.3:5443"\n\n[host."https://10.1.2.3:5443"]\n'
        '  capabilities = ["pull", "resolve"]\n  ca = "ca.crt"'
    )
    other = named(
        render("registry.enabled=true", "registry.addresses={fd00::5}"), "ConfigMap", "rollbox-registry-nodes"
    )
    assert other["data"]["hosts.toml"].startswith('server = "https://[fd00::5]:5443"')
    said = notes(*ON)
    assert f"certs.d/{HOST}" in said
    assert "WARNING: registry.addresses" not in said
    assert "WARNING: registry.addresses is empty" in notes("registry.enabled=true")


def test_only_the_control_plane_calls_the_mirror() -> None:
    policy = named(render(*ON), "NetworkPolicy", "rollbox-mirror")["spec"]
    ((peer,),) = [one["from"] for one in policy["ingress"]]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "controlplane"


def test_owners_secrets_can_be_read_and_nothing_else() -> None:
    manifests = render(*ON, "sandboxes.ownerPullSecrets.me[0]=mine", "sandboxes.ownerPullSecrets.me[1]=ours")
    (rule,) = [
        one for one in named(manifests, "Role", "rollbox-controlplane")["rules"] if "secrets" in one["resources"]
    ]
    assert sorted(rule["resourceNames"]) == ["mine", "ours", "rollbox-registry-pull"]
    assert json.loads(environment(manifests, "rollbox-controlplane")["OWNER_PULL_SECRETS"]) == {"me": ["mine", "ours"]}


def test_a_registry_that_is_there_is_used() -> None:
    manifests = render(*EXTERNAL)
    assert not [one for one in of_kind(manifests, "StatefulSet") if one["metadata"]["name"] == "rollbox-registry"]
    assert environment(manifests, "rollbox-controlplane")["REGISTRY"] == "registry.example.com"
    mirror = environment(manifests, "rollbox-mirror")
    assert mirror["REGISTRY"] == "registry.example.com"
    assert "REGISTRY_CA" not in mirror
    volumes = named(manifests, "Deployment", "rollbox-mirror")["spec"]["template"]["spec"]["volumes"]
    assert {"secretName": "account", "defaultMode": 0o440} in [one.get("secret") for one in volumes]


@pytest.mark.parametrize(
    "settings",
    [
        ("sandboxes.ownerPullSecrets.me[0]=mine",),
        (*ON, "sandboxes.images.digests=never"),
        EXTERNAL[:2],
        ("registry.enabled=true", "registry.external.existingSecret=account"),
        (*ON, "registry.external.host=Registry"),
        (*ON, "registry.port=0"),
        (*ON, "registry.mirror.copiesAtOnce=0"),
        (*ON, "sandboxes.ownerPullSecrets.me=mine"),
    ],
)
def test_what_cannot_be_is_refused(settings: tuple[str, ...]) -> None:
    with pytest.raises(ChartError):
        render(*settings)
