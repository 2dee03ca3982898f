"""What the chart asks of the cluster: the sandboxes' namespace, rights, classes, names, and the hooks."""

import json

import pytest

from tests.support.helm import ChartError, Manifest, named, of_kind, render

# What is declared by custom resources.
DECLARED = ("sandboxpools", "sandboxquotas", "egresspresets", "datasets", "apikeys")
OWN_POLICY = "rollbox-rollbox-sandboxes"


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render()


def test_rights_are_exactly_these(manifests: list[Manifest]) -> None:
    rules = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): _verbs(one)
        for one in manifests
        if one["kind"] in {"Role", "ClusterRole"} and "helm.sh/hook" not in one["metadata"].get("annotations", {})
    }
    look = ["get", "list", "watch"]
    change = ["delete", "get", "list", "patch", "watch"]
    assert rules == {
        ("Role", "rollbox-sandboxes", "rollbox-controlplane"): {
            "pods": ["create", *change],
            "events": look[1:],
            "persistentvolumeclaims": ["get"],
            "services": ["list"],
            "endpoints": ["delete", "list"],
            "endpointslices": ["create", "delete", "list", "patch"],
            **{
                kind: ["create", *change]
                for kind in ("sandboxpools", "sandboxquotas", "egresspresets", "datasets", "apikeys")
            },
            **{
                f"{kind}/status": ["patch"]
                for kind in ("sandboxpools", "sandboxquotas", "egresspresets", "datasets", "apikeys")
            },
        },
        # To empty one: it is marked and cordoned; its kubelet's lease tells first that it is silent.
        ("Role", "kube-node-lease", "rollbox-rollbox-controlplane"): {"leases": look[1:]},
        ("ClusterRole", "", "rollbox-rollbox-controlplane"): {
            "nodes": sorted([*look, "patch"]),
            "pods": look[1:],
            "runtimeclasses": ["get"],
        },
        ("Role", "rollbox-sandboxes", "rollbox-operator"): {
            "pods": change[:-1],
            "events": ["create"],
        },
        # Events about nodes stand there.
        ("Role", "default", "rollbox-rollbox-operator"): {"events": ["create"]},
        ("ClusterRole", "", "rollbox-rollbox-operator"): {"nodes": look, "customresourcedefinitions": ["get"]},
        ("Role", "rollbox-sandboxes", "rollbox-teardown"): {"pods": ["delete", "list", "patch"]},
        ("ClusterRole", "", "rollbox-rollbox-dns"): dict.fromkeys(
            ("namespaces", "services", "endpointslices"), look[1:]
        ),
    }


def _verbs(role: Manifest) -> dict[str, list[str]]:
    """By resource, of all rules."""
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            found.setdefault(resource, set()).update(rule["verbs"])
    return {resource: sorted(verbs) for resource, verbs in found.items()}


def test_every_binding_names_what_is_there(manifests: list[Manifest]) -> None:
    for binding in [*of_kind(manifests, "RoleBinding"), *of_kind(manifests, "ClusterRoleBinding")]:
        named_role = [
            one
            for one in of_kind(manifests, binding["roleRef"]["kind"])
            if one["metadata"]["name"] == binding["roleRef"]["name"]
            and one["metadata"].get("namespace") == binding["metadata"].get("namespace")
        ]
        assert len(named_role) == 1, binding["metadata"]["name"]
        for subject in binding["subjects"]:
            named(manifests, "ServiceAccount", subject["name"])


def test_shards_are_headless_and_their_endpoints_are_the_control_planes_to_write(manifests: list[Manifest]) -> None:
    shards = [one for one in of_kind(manifests, "Service") if one["metadata"].get("namespace") == "rollbox-sandboxes"]
    assert [one["metadata"]["name"] for one in shards] == [f"shard-{n}" for n in range(16)]
    for shard in shards:
        assert shard["spec"]["clusterIP"] == "None"
        assert "selector" not in shard["spec"]
        assert shard["metadata"]["labels"]["rollbox.dev/installation"] == "rollbox"
    assert _may_write_names(manifests)


def _may_write_names(manifests: list[Manifest]) -> bool:
    roles = [one for one in of_kind(manifests, "Role") if one["metadata"]["name"] == "rollbox-controlplane"]
    return any("endpointslices" in rule["resources"] for role in roles for rule in role["rules"])


def test_shards_agree_everywhere() -> None:
    manifests = render("dns.shards=3")
    for name in ("gateway", "controlplane"):
        (container,) = named(manifests, "Deployment", f"rollbox-{name}")["spec"]["template"]["spec"]["containers"]
        assert {"name": f"ROLLBOX_{name.upper()}_DNS_SHARDS", "value": "3"} in container["env"]
    assert len([one for one in of_kind(manifests, "Service") if one["metadata"]["name"].startswith("shard-")]) == 3


def test_without_names_nothing_of_them_is_there() -> None:
    manifests = render("dns.enabled=false")
    names = [one["metadata"]["name"] for one in manifests]
    assert not [name for name in names if name.startswith("shard-") or name.endswith("-dns")]
    (gateway,) = named(manifests, "Deployment", "rollbox-gateway")["spec"]["template"]["spec"]["containers"]
    assert not [one for one in gateway["env"] if "_DNS_" in one["name"]]
    assert not _may_write_names(manifests)


def test_the_name_server_knows_sandboxes_only_and_keeps_no_answers(manifests: list[Manifest]) -> None:
    corefile = named(manifests, "ConfigMap", "rollbox-dns")["data"]["Corefile"]
    words = {line.strip() for line in corefile.splitlines()}
    assert {"namespaces rollbox-sandboxes", "labels rollbox.dev/installation=rollbox", "ttl 1"} <= words
    assert not any(line.startswith(("cache", "forward")) for line in words)


def test_sandboxes_yield_to_everything(manifests: list[Manifest]) -> None:
    sandbox = named(manifests, "PriorityClass", "rollbox-sandbox")
    assert sandbox["value"] < 0
    assert sandbox["preemptionPolicy"] == "Never"
    assert named(manifests, "PriorityClass", "rollbox-platform")["value"] > 0


def test_preflight_probes_the_handler_before_anything_is_there(manifests: list[Manifest]) -> None:
    probe_class = named(manifests, "RuntimeClass", "rollbox-preflight")
    assert probe_class["handler"] == named(manifests, "RuntimeClass", "gvisor")["handler"] == "runsc"
    assert probe_class["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    settings = json.loads(named(manifests, "ConfigMap", "rollbox-preflight")["data"]["settings.json"])
    assert settings["pod"]["spec"]["runtimeClassName"] == "rollbox-preflight"
    assert settings["requiredKernel"] == "gVisor"


def test_preflight_uses_a_class_that_exists_already() -> None:
    manifests = render("runtimeClass.create=false", "runtimeClass.name=cloud")
    assert not of_kind(manifests, "RuntimeClass")
    settings = json.loads(named(manifests, "ConfigMap", "rollbox-preflight")["data"]["settings.json"])
    assert settings["pod"]["spec"]["runtimeClassName"] == "cloud"


def test_hooks_leave_nothing(manifests: list[Manifest]) -> None:
    hooks = [one for one in manifests if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    components = {one["metadata"]["labels"]["app.kubernetes.io/component"] for one in hooks}
    assert components == {"preflight", "teardown", "test"}
    for one in hooks:
        assert "hook-succeeded" in one["metadata"]["annotations"]["helm.sh/hook-delete-policy"], one["metadata"]["name"]


def test_teardown_stops_what_makes_sandboxes_first(manifests: list[Manifest]) -> None:
    settings = json.loads(named(manifests, "ConfigMap", "rollbox-teardown")["data"]["settings.json"])
    assert settings["deployments"] == ["rollbox-controlplane", "rollbox-operator"]
    assert settings["sandboxNamespace"] == "rollbox-sandboxes"
    # Around an install or uninstall that namespace may not be there.
    hooks = [one["metadata"] for one in manifests if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    there = {one["annotations"]["helm.sh/hook"] for one in hooks if one.get("namespace") == "rollbox-sandboxes"}
    assert there == {"test"}


def test_the_api_server_takes_only_sandboxed_pods_where_sandboxes_are(manifests: list[Manifest]) -> None:
    policy = named(manifests, "ValidatingAdmissionPolicy", OWN_POLICY)
    binding = named(manifests, "ValidatingAdmissionPolicyBinding", OWN_POLICY)
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["validationActions"] == ["Deny"]
    where = {"matchLabels": {"kubernetes.io/metadata.name": "rollbox-sandboxes"}}
    assert binding["spec"]["matchResources"] == {"namespaceSelector": where}
    assert policy["spec"]["failurePolicy"] == "Fail"
    words = " ".join(one["expression"] for one in policy["spec"]["validations"])
    for word in ("'gvisor'", "hostNetwork", "hostPID", "hostIPC", "hostPath", "privileged", "Token", "restartPolicy"):
        assert word in words


def test_folders_of_nodes_are_those_that_the_operator_allows_and_mounted_read_only() -> None:
    def rules(*values: str) -> dict[str, str]:
        policy = named(render(*values), "ValidatingAdmissionPolicy", OWN_POLICY)
        return {one["message"]: one["expression"] for one in policy["spec"]["validations"]}

    none, some = rules(), rules("datasets.folders={/srv/data,/mnt/more}")
    assert "!has(one.hostPath))" in none["a pod in the sandboxes' namespace must not mount a hostPath"]
    (allowed,) = [rule for said, rule in some.items() if "not below /srv/data or /mnt/more" in said]
    assert "['/srv/data', '/mnt/more'].exists(folder" in allowed
    assert "a pod in the sandboxes' namespace must mount claims and hostPaths read only" in none
    for bad in ("/", "relative", "/srv/../etc", "/srv/data/", "/srv/'x"):
        with pytest.raises(ChartError):
            render(f"datasets.folders={{{bad}}}")
    told = render("datasets.folders={/srv/data,/mnt/more}", "datasets.imageVolumes=true")
    control = named(told, "Deployment", "rollbox-controlplane")
    env = {one["name"]: one.get("value") for one in control["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["ROLLBOX_CONTROLPLANE_DATASET_FOLDERS"] == "/srv/data,/mnt/more"
    assert env["ROLLBOX_CONTROLPLANE_IMAGE_VOLUMES"] == "true"


def test_scratch_is_claims_of_one_class_and_the_control_plane_may_change_no_others() -> None:
    none, some = render(), render("scratch.storageClass=shared")
    policy, names = "rollbox-rollbox-controlplane-scratch", "r'^rollbox-scratch-rollbox-[0-9a-f]{32}$'"
    for told, there in ((none, False), (some, True)):
        control = named(told, "Deployment", "rollbox-controlplane")
        env = {one["name"]: one.get("value") for one in control["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert env.get("ROLLBOX_CONTROLPLANE_SCRATCH_CLASS") == ("shared" if there else None)
        (role,) = [
            one
            for one in of_kind(told, "Role")
            if one["metadata"]["name"] == "rollbox-controlplane" and "persistentvolumeclaims" in _verbs(one)
        ]
        verbs = ["create", "delete", "get", "patch"] if there else ["get"]
        assert _verbs(role)["persistentvolumeclaims"] == verbs
        assert (policy in [one["metadata"]["name"] for one in of_kind(told, "ValidatingAdmissionPolicy")]) == there
        own = named(told, "ValidatingAdmissionPolicy", OWN_POLICY)
        (shared,) = [one["expression"] for one in own["spec"]["variables"] if one["name"] == "shared"]
        assert (f"!one.persistentVolumeClaim.claimName.matches({names})" in shared) == there
    (rule,) = named(some, "ValidatingAdmissionPolicy", policy)["spec"]["validations"]
    assert rule["expression"] == f"request.name.matches({names})"
    with pytest.raises(ChartError):
        render("scratch.storageClass=No Class")


def test_the_admission_policy_names_the_class_and_can_be_left_out() -> None:
    policy = named(render("runtimeClass.name=cloud"), "ValidatingAdmissionPolicy", OWN_POLICY)
    assert "in ['cloud']" in policy["spec"]["validations"][0]["expression"]
    without = of_kind(render("admissionPolicy.enabled=false"), "ValidatingAdmissionPolicy")
    assert OWN_POLICY not in [one["metadata"]["name"] for one in without]
