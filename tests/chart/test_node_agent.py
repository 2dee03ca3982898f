"""The node agent, which has power over nodes: only where it was asked for, with nothing beyond what it needs."""

import base64
from typing import Any

import pytest
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate

from tests.support.helm import ChartError, Manifest, named, of_kind, render
from tests.support.helm_cluster import helm_cluster

ON = "nodeAgent.enabled=true"


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render(ON)


def agent(manifests: list[Manifest]) -> dict[str, Any]:
    """The specification of its pods."""
    spec: dict[str, Any] = named(manifests, "DaemonSet", "rollbox-node")["spec"]["template"]["spec"]
    return spec


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_without_being_asked_for_there_is_none() -> None:
    manifests = render()
    assert of_kind(manifests, "DaemonSet") == []
    assert not [one["metadata"]["name"] for one in manifests if "rollbox-node" in one["metadata"]["name"]]
    for name in ("controlplane", "operator"):
        (container,) = named(manifests, "Deployment", f"rollbox-{name}")["spec"]["template"]["spec"]["containers"]
        assert not [one for one in environment(container) if "NODE_AGENTS" in one]


def test_it_has_the_socket_and_one_capability_and_no_more(manifests: list[Manifest]) -> None:
    spec = agent(manifests)
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostIPC", "serviceAccountName"} & spec.keys()
    paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    assert paths == {"containerd": "/run/containerd", "images": "/var/lib/containerd"}
    (container,) = spec["containers"]
    assert all(one["readOnly"] for one in container["volumeMounts"])
    assert container["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["KILL"]},
    }
    for side in ("requests", "limits"):
        assert {"cpu", "memory"} <= container["resources"][side].keys()


def test_where_images_are_mounted_lazily_it_looks_at_the_snapshotter() -> None:
    lazy = ("lazyPulling.enabled=true", "lazyPulling.images[0]=registry.example.com/estargz/")
    for told, folder in (((), "/run/rollbox-snapshotter"), (("lazyPulling.folder=/run/k3s/lazy",), "/run/k3s/lazy")):
        spec = agent(render(ON, *lazy, *told))
        paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
        assert paths["snapshotter"] == folder
        (container,) = spec["containers"]
        assert all(one["readOnly"] for one in container["volumeMounts"])
        mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        assert environment(container)["ROLLBOX_NODE_MOUNTS"] == f"{mounted['snapshotter']}/mounts.sock"


def test_the_socket_may_lie_elsewhere() -> None:
    told = ("nodeAgent.containerd.socket=/run/k3s/containerd/c.sock", "nodeAgent.containerd.root=/var/lib/k3s")
    spec = agent(render(ON, *told))
    paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    assert paths == {"containerd": "/run/k3s/containerd", "images": "/var/lib/k3s"}
    assert environment(spec["containers"][0])["ROLLBOX_NODE_CONTAINERD"] == "/run/rollbox/containerd/c.sock"


def test_it_knows_the_handlers_of_all_sandboxes(manifests: list[Manifest]) -> None:
    def handlers(manifests: list[Manifest]) -> str:
        return environment(agent(manifests)["containers"][0])["ROLLBOX_NODE_HANDLERS"]

    assert handlers(manifests) == "runsc"
    lazy = ("lazyPulling.enabled=true", "lazyPulling.handler=runsc-lazy", "lazyPulling.images[0]=r.example.com/e/")
    assert handlers(render(ON, *lazy)) == "runsc,runsc-lazy"


def test_it_runs_where_sandboxes_do() -> None:
    taint, other = {"key": "sandboxes", "operator": "Exists"}, {"key": "gvisor", "operator": "Exists"}
    spec = agent(
        render(
            ON,
            "sandboxes.nodeSelector.a=b",
            "runtimeClass.nodeSelector.c=d",
            "sandboxes.tolerations[0].key=sandboxes",
            "sandboxes.tolerations[0].operator=Exists",
            "runtimeClass.tolerations[0].key=gvisor",
            "runtimeClass.tolerations[0].operator=Exists",
        )
    )
    assert spec["nodeSelector"] == {"a": "b", "c": "d"}
    assert spec["tolerations"] == [taint, other]


def test_only_control_plane_and_operator_reach_it_and_it_calls_nobody(manifests: list[Manifest]) -> None:
    spec = named(manifests, "NetworkPolicy", "rollbox-node")["spec"]
    (rule,) = spec["ingress"]
    peers = [one["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for one in rule["from"]]
    assert (peers, rule["ports"]) == (["controlplane", "operator"], [{"port": 8443, "protocol": "TCP"}])
    assert (spec["policyTypes"], spec["egress"]) == (["Ingress", "Egress"], [])


def certificates(manifests: list[Manifest], side: str) -> dict[str, bytes]:
    data = named(manifests, "Secret", f"rollbox-node-{side}")["data"]
    return {name: base64.b64decode(text) for name, text in data.items()}


def test_each_side_has_a_certificate_for_its_name_alone(manifests: list[Manifest]) -> None:
    names = {}
    for side in ("server", "client"):
        pair = certificates(manifests, side)
        assert pair.keys() == {"ca.crt", "tls.crt", "tls.key"}
        certificate = load_pem_x509_certificate(pair["tls.crt"])
        certificate.verify_directly_issued_by(load_pem_x509_certificate(pair["ca.crt"]))
        (names[side],) = certificate.extensions.get_extension_for_class(
            SubjectAlternativeName
        ).value.get_values_for_type(DNSName)
    (container,) = agent(manifests)["containers"]
    assert environment(container)["ROLLBOX_NODE_CLIENT"] == names["client"]
    for name in ("controlplane", "operator"):
        spec = named(manifests, "Deployment", f"rollbox-{name}")["spec"]["template"]["spec"]
        told = environment(spec["containers"][0])
        assert told["ROLLBOX_CONTROLPLANE_NODE_AGENTS"] == "rollbox/rollbox-node"
        assert told["ROLLBOX_CONTROLPLANE_NODE_AGENTS_NAME"] == names["server"]
        assert told["ROLLBOX_CONTROLPLANE_NODE_IMAGES"] == "60%"
        mounted = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
        assert mounted["node-agents"] == told["ROLLBOX_CONTROLPLANE_NODE_AGENTS_TLS"]
        (secret,) = [one["secret"]["secretName"] for one in spec["volumes"] if one["name"] == "node-agents"]
        assert secret == "rollbox-node-client"


def test_nobody_has_the_key_that_signs(manifests: list[Manifest]) -> None:
    secrets = {one["metadata"]["name"]: one["data"] for one in of_kind(manifests, "Secret")}
    assert {name for name, data in secrets.items() if "ca.key" in data} == set()


def test_certificates_outlive_an_upgrade_and_one_alone_does_not(manifests: list[Manifest]) -> None:
    kept = [{**named(manifests, "Secret", f"rollbox-node-{side}"), "apiVersion": "v1"} for side in ("server", "client")]
    for one in kept:
        one["metadata"]["namespace"] = "rollbox"
    with helm_cluster(*kept) as cluster:
        again = render(ON, cluster=cluster)
    for side in ("server", "client"):
        assert certificates(again, side) == certificates(manifests, side)
    with helm_cluster(kept[0]) as cluster:
        renewed = render(ON, cluster=cluster)
    assert certificates(renewed, "server")["tls.crt"] != certificates(manifests, "server")["tls.crt"]
    assert certificates(renewed, "server")["ca.crt"] == certificates(renewed, "client")["ca.crt"]


def test_where_agents_are_is_all_that_may_be_looked_up(manifests: list[Manifest]) -> None:
    (rule,) = named(manifests, "Role", "rollbox-node")["rules"]
    assert (rule["resources"], rule["verbs"]) == (["endpointslices"], ["list", "watch"])
    subjects = [one["name"] for one in named(manifests, "RoleBinding", "rollbox-node")["subjects"]]
    assert subjects == ["rollbox-controlplane", "rollbox-operator"]


def test_pull_secrets_are_read_for_prefetches_too() -> None:
    settings = ("sandboxes.imagePullSecrets[0]=one", "sandboxes.images.digests=never")
    for extra, expected in (((), []), ((ON,), [["one"]])):
        rules = named(render(*settings, *extra), "Role", "rollbox-controlplane")["rules"]
        assert [one["resourceNames"] for one in rules if "secrets" in one["resources"]] == expected


INSTALLER = (ON, "nodeAgent.installer.enabled=true")
LAZY = ("lazyPulling.enabled=true", "lazyPulling.images[0]=r.example.com/e/")
UNPROVEN = {"key": "rollbox.dev/unproven", "operator": "Exists"}


def installer(manifests: list[Manifest]) -> dict[str, Any]:
    """The specification of its pods."""
    spec: dict[str, Any] = named(manifests, "DaemonSet", "rollbox-installer")["spec"]["template"]["spec"]
    return spec


def mounted(spec: dict[str, Any]) -> dict[str, bool]:
    """Folders of the node, each at the same place in the pod -> whether it may be written."""
    (container,) = spec["containers"]
    paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"]}
    assert all(paths[one["name"]] == one["mountPath"] for one in container["volumeMounts"])
    return {one["mountPath"]: not one.get("readOnly") for one in container["volumeMounts"]}


def test_an_installer_has_the_folders_that_it_needs_and_no_capability() -> None:
    spec = installer(render(*INSTALLER))
    assert mounted(spec) == {
        "/etc/containerd": True,
        "/opt/rollbox": True,
        "/etc/systemd/system": True,
        "/run/containerd": False,
        "/run/dbus": False,
    }
    assert not {"hostNetwork", "hostIPC", "hostPID", "serviceAccountName"} & spec.keys()
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["args"] == ["install", "--stay"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "privileged" not in container["securityContext"]


def test_an_installer_that_raises_limits_has_each_setting_alone() -> None:
    spec = installer(render(*INSTALLER, "nodeAgent.installer.raiseLimits=true", "nodeAgent.sandboxes=400"))
    assert spec["hostPID"] is True
    (container,) = spec["containers"]
    told = environment(container)
    assert (told["ROLLBOX_INSTALL_LIMITS"], told["ROLLBOX_INSTALL_SANDBOXES"]) == ("/run/rollbox/limits", "400")
    paths = {one["name"]: one["hostPath"] for one in spec["volumes"]}
    places = {one["mountPath"]: paths[one["name"]] for one in container["volumeMounts"]}
    raised = {place: of for place, of in places.items() if of["path"].startswith("/proc")}
    assert len(raised) == 6
    assert raised["/run/rollbox/limits/kernel/pid_max"] == {"path": "/proc/sys/kernel/pid_max", "type": "File"}
    assert all(of["path"] == place.replace("/run/rollbox/limits", "/proc/sys") for place, of in raised.items())
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_without_systemd_it_sees_the_nodes_processes_instead_of_the_bus() -> None:
    spec = installer(render(*INSTALLER, *LAZY, "nodeAgent.installer.supervisor=process"))
    assert spec["hostPID"] is True
    assert mounted(spec) == {
        "/etc/containerd": True,
        "/opt/rollbox": True,
        "/run/containerd": False,
        "/run/rollbox-snapshotter": False,
    }
    told = environment(spec["containers"][0])
    assert (told["ROLLBOX_INSTALL_LAZY_HANDLER"], told["ROLLBOX_INSTALL_LAZY_IMAGES"]) == (
        "runsc-lazy",
        "r.example.com/e/",
    )


def test_the_installer_trusts_the_images_that_starts_are_lazy_with() -> None:
    manifests = render(*INSTALLER, *LAZY, "registry.enabled=true", "registry.addresses[0]=10.0.0.1")
    (container,) = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"]
    starts = environment(container)["ROLLBOX_CONTROLPLANE_LAZY_IMAGES"]
    assert environment(installer(manifests)["containers"][0])["ROLLBOX_INSTALL_LAZY_IMAGES"] == starts
    assert "," in starts


def test_nodes_are_proven_by_their_agents_and_platform_pods_run_on_others_too() -> None:
    manifests = render(*INSTALLER, *LAZY, "sandboxes.nodeSelector.a=b")
    spec = agent(manifests)
    assert environment(spec["containers"][0])["ROLLBOX_NODE_INSTALLED"] == "/run/rollbox/installed/state"
    operator = named(manifests, "Deployment", "rollbox-operator")["spec"]["template"]["spec"]
    told = environment(operator["containers"][0])
    assert told["ROLLBOX_CONTROLPLANE_NODE_PROOF"] == "required"
    assert told["ROLLBOX_CONTROLPLANE_NODE_PROOF_SELECTOR"] == '{"a":"b"}'
    for kind in ("Deployment", "StatefulSet", "DaemonSet"):
        for one in of_kind(manifests, kind):
            assert UNPROVEN in one["spec"]["template"]["spec"]["tolerations"], one["metadata"]["name"]


def test_an_uninstall_lifts_the_taint() -> None:
    manifests = render(*INSTALLER, "nodeAgent.installer.mode=uninstall")
    assert installer(manifests)["containers"][0]["args"] == ["uninstall", "--stay"]
    operator = named(manifests, "Deployment", "rollbox-operator")["spec"]["template"]["spec"]
    assert environment(operator["containers"][0])["ROLLBOX_CONTROLPLANE_NODE_PROOF"] == "lifted"
    assert "ROLLBOX_NODE_INSTALLED" not in environment(agent(manifests)["containers"][0])


def test_only_an_installer_lets_the_operator_change_nodes() -> None:
    def verbs(*settings: str) -> set[str]:
        rules = named(render(*settings), "ClusterRole", "rollbox-rollbox-operator")["rules"]
        return {verb for rule in rules if rule["resources"] == ["nodes"] for verb in rule["verbs"]}

    assert verbs(ON) == {"get", "list", "watch"}
    assert verbs(*INSTALLER) == {"get", "list", "watch", "patch"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("nodeAgent.installer.enabled=true",), "needs nodeAgent.enabled"),
        ((*INSTALLER, "nodeAgent.installer.supervisor=runit"), "supervisor"),
        ((*INSTALLER, "nodeAgent.installer.config=/config.toml"), "config"),
        ((*INSTALLER, "nodeAgent.installer.mode=maybe"), "mode"),
    ],
)
def test_what_an_installer_cannot_be_told_is_refused(settings: tuple[str, ...], words: str) -> None:
    with pytest.raises(ChartError, match=words):
        render(*settings)


REGISTRY = ("registry.enabled=true", "registry.addresses[0]=10.1.2.3")
PUSH = "rollbox-registry.rollbox.svc.cluster.local:5444"


def named_volume(spec: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (one for one in spec["volumes"] if one["name"] == name)
    return dict(found)


def test_with_a_private_registry_it_makes_images_of_sandboxes() -> None:
    manifests = render(ON, *REGISTRY)
    spec = agent(manifests)
    paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    assert paths["runsc"] == "/run/containerd/runsc/k8s.io"
    (container,) = spec["containers"]
    # But for one of its own, which the kubelet bounds too.
    assert [one["name"] for one in container["volumeMounts"] if not one.get("readOnly")] == ["spool"]
    assert named_volume(spec, "spool") == {"name": "spool", "emptyDir": {"sizeLimit": "17Gi"}}
    assert environment(container)["ROLLBOX_NODE_SPOOL_GIBIBYTES"] == "16"
    # How many files an image may have is said by the memory that there is.
    (memory,) = [one["valueFrom"] for one in container["env"] if one["name"] == "ROLLBOX_NODE_MEMORY_BYTES"]
    assert memory == {"resourceFieldRef": {"containerName": "agent", "resource": "limits.memory"}}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["KILL"]}
    assert environment(container)["ROLLBOX_NODE_RUNSC"] == "/run/rollbox/runsc"
    # Its only way out, and a token comes with each call.
    policy = named(manifests, "NetworkPolicy", "rollbox-node")["spec"]
    assert policy["egress"] == [{"ports": [{"port": 5445, "protocol": "TCP"}]}]
    assert not [one for one in spec["volumes"] if "registry" in str(one)]
    (plane,) = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"]
    told = environment(plane)
    assert told["ROLLBOX_CONTROLPLANE_REGISTRY_PUSH"] == PUSH
    assert told["ROLLBOX_CONTROLPLANE_REGISTRY_ACCOUNT_FILE"] == "/etc/rollbox/registry/account"
    assert told["ROLLBOX_CONTROLPLANE_REGISTRY_COMMITS"] == PUSH.replace("5444", "5445")
    (operator,) = named(manifests, "Deployment", "rollbox-operator")["spec"]["template"]["spec"]["containers"]
    assert not [name for name in environment(operator) if "REGISTRY" in name]
    registry = named(manifests, "StatefulSet", "rollbox-registry")["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in registry] == ["commits", "read", "write", "collector"]
    assert "token" in base64.b64decode(named(manifests, "Secret", "rollbox-registry")["data"]["commits.yaml"]).decode()
    # What signs tokens is the control plane's alone.
    assert "commits.key" not in named(manifests, "Secret", "rollbox-registry")["data"]


def test_without_both_it_has_neither_kernels_nor_a_way_out(manifests: list[Manifest]) -> None:
    assert "ROLLBOX_NODE_RUNSC" not in environment(agent(manifests)["containers"][0])
    assert named(manifests, "NetworkPolicy", "rollbox-node")["spec"]["egress"] == []
    alone = render(*REGISTRY)
    (plane,) = named(alone, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"]
    assert "ROLLBOX_CONTROLPLANE_REGISTRY_PUSH" not in environment(plane)


def test_the_account_of_an_external_registry_is_the_mirrors_and_agents_go_there_with_tokens() -> None:
    external = ("registry.external.host=r.example.com:5000", "registry.external.existingSecret=account")
    manifests = render(ON, "registry.enabled=true", *external, "registry.commitPort=7000")
    assert named(manifests, "NetworkPolicy", "rollbox-node")["spec"]["egress"] == [
        {"ports": [{"port": 7000, "protocol": "TCP"}]}
    ]
    address = "rollbox-mirror.rollbox.svc.cluster.local"
    (plane,) = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"]
    told = environment(plane)
    assert told["ROLLBOX_CONTROLPLANE_REGISTRY_PUSH"] == "r.example.com:5000"
    assert told["ROLLBOX_CONTROLPLANE_REGISTRY_COMMITS"] == f"{address}:7000"
    assert told["ROLLBOX_CONTROLPLANE_REGISTRY_COMMITS_CA"] == "/etc/rollbox/mirror/ca.crt"
    assert told["ROLLBOX_CONTROLPLANE_REGISTRY_TOKENS"] == "/etc/rollbox/commits"
    pod = named(manifests, "Deployment", "rollbox-mirror")["spec"]["template"]["spec"]
    gate = environment(pod["containers"][0])
    assert gate["ROLLBOX_MIRROR_COMMITS"] == "0.0.0.0:7000"
    assert gate["ROLLBOX_MIRROR_COMMITS_CERTIFICATE"] == "/etc/rollbox/commits/tls.crt"
    # It judges tokens, and makes none.
    assert named_volume(pod, "commits")["secret"]["items"] == [{"key": "tls.crt", "path": "tls.crt"}]
    ports = named(manifests, "Service", "rollbox-mirror")["spec"]["ports"]
    assert {"name": "commits", "port": 7000, "targetPort": "commits"} in ports
    agents = named(manifests, "NetworkPolicy", "rollbox-mirror")["spec"]["ingress"][1]
    assert agents["ports"] == [{"port": 7000, "protocol": "TCP"}]
    assert agents["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "node"
    certificate = base64.b64decode(named(manifests, "Secret", "rollbox-mirror-server")["data"]["tls.crt"])
    names = load_pem_x509_certificate(certificate).extensions.get_extension_for_class(SubjectAlternativeName)
    assert names.value.get_values_for_type(DNSName) == ["mirror.rollbox.rollbox", address]
    assert "account" not in str(agent(manifests))


def test_the_charts_own_registry_takes_tokens_itself() -> None:
    pod = named(render(ON, "registry.enabled=true"), "Deployment", "rollbox-mirror")["spec"]["template"]["spec"]
    assert "ROLLBOX_MIRROR_COMMITS" not in environment(pod["containers"][0])
    assert "commits" not in [one["name"] for one in pod["volumes"]]
