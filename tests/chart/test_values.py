"""Values: two suffice, and one that is unknown or out of range is refused by its name."""

import pytest

from tests.support.helm import CHART, KUBE_VERSION, ChartError, named, of_kind, render, run


def test_two_values_are_enough() -> None:
    kinds = {one["kind"] for one in render()}
    assert {"Deployment", "StatefulSet", "Service", "NetworkPolicy", "RuntimeClass", "HorizontalPodAutoscaler"} <= kinds


def test_strict_lint_passes() -> None:
    run("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, "--set", "images.registry=r")


def test_without_a_registry_the_refusal_says_what_to_set() -> None:
    with pytest.raises(ChartError, match=r"images\.registry is empty: set it, or images\.\w+"):
        render("images.registry=")


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("gateway.replicas=0", "'/gateway/replicas': minimum: got 0, want 1"),
        ("gateway.replicas=many", "'/gateway/replicas': got string, want integer"),
        ("gateway.replica=2", "'/gateway': additional properties 'replica' not allowed"),
        ("gateway.autoscaling.cpuPercent=101", "'/gateway/autoscaling/cpuPercent': maximum"),
        ("gateway.service.type=Public", "'/gateway/service/type': value must be one of"),
        ("controlplane.startsPerNode=2000", "'/controlplane/startsPerNode': maximum"),
        ("capacity.pendingPods=0", "'/capacity/pendingPods': minimum"),
        ("packing.replicas=0", "'/packing/replicas': minimum"),
        ("packing.enabled=maybe", "'/packing/enabled': got string, want boolean"),
        ("packing.profile=x", "'/packing': additional properties 'profile' not allowed"),
        ("capacity.nodesCanBeAdded=maybe", "'/capacity/nodesCanBeAdded': got string, want boolean"),
        ("drain.evictions=maybe", "'/drain/evictions': value must be one of"),
        ("drain.byApi=maybe", "'/drain/byApi': got string, want boolean"),
        ("apiFairness.shares=0", "'/apiFairness/shares': minimum"),
        ("controlplane.operators[0]=a:b", "'/controlplane/operators/0'"),
        ("controlplane.audit.kept=-1", "'/controlplane/audit/kept': minimum"),
        ("controlplane.audit.file=x", "'/controlplane/audit': additional properties 'file' not allowed"),
        ("controlplane.events.webhook=x", "'/controlplane/events': additional properties 'webhook' not allowed"),
        ("controlplane.events.webhooks[0].name=ops", "missing properties 'url', 'secretName'"),
        ("controlplane.drainSeconds=0", "'/controlplane/drainSeconds': minimum"),
        ("controlplane.resources.limits.cpu=lots", "'/controlplane/resources/limits/cpu'"),
        ("operator.replicas=2", "'/operator': additional properties 'replicas'"),
        ("redis.url=http://elsewhere", "'/redis/url'"),
        ("redis.resources.limits.memory=12XB", "'/redis/resources/limits/memory'"),
        ("dns.shards=257", "'/dns/shards': maximum"),
        ("dns.shards=0", "'/dns/shards': minimum"),
        ("sandboxes.namespace=Not_A_Name", "'/sandboxes/namespace'"),
        ("sandboxes.tolerations[0].effect=Never", "'/sandboxes/tolerations/0/effect'"),
        ("sandboxes.overcommit.cpu=0", "'/sandboxes/overcommit/cpu': minimum"),
        ("sandboxes.overcommit.memory=2", "'/sandboxes/overcommit/memory': maximum"),
        ("sandboxes.overcommit.memory=1.5", "'/sandboxes/overcommit/memory'"),
        ("sandboxes.overcommit.memory=0.1234", "'/sandboxes/overcommit/memory'"),
        ("sandboxes.overcommit.disk=1", "'/sandboxes/overcommit': additional properties 'disk'"),
        ("sandboxes.quota.pods=-1", "'/sandboxes/quota/pods'"),
        ("sandboxes.images.digests=maybe", "'/sandboxes/images/digests': value must be one of"),
        ("sandboxes.images.rewrites[0]=docker.io", "'/sandboxes/images/rewrites/0'"),
        ("sandboxes.images.mirror=x", "'/sandboxes/images': additional properties 'mirror' not allowed"),
        ("platform.userNamespaces=maybe", "'/platform/userNamespaces': got string, want boolean"),
        ("gpu.handler=runsc-gpu", "gpu.deviceClass does not say which devices"),
        ("gpu.deviceClass=Not_A_Name", "'/gpu/deviceClass'"),
        ("gpu.devices=2", "'/gpu': additional properties 'devices' not allowed"),
        ("lazyPulling.enabled=true", "lazyPulling.images is empty"),
        ("lazyPulling.images[0]=registry.example.com/team", "'/lazyPulling/images/0'"),
        ("lazyPulling.images[0]=team/", "'/lazyPulling/images/0'"),
        ("nodeAgent.enabled=maybe", "'/nodeAgent/enabled': got string, want boolean"),
        ("nodeAgent.pullsAtOnce=0", "'/nodeAgent/pullsAtOnce': minimum"),
        ("nodeAgent.containerd.socket=containerd.sock", "'/nodeAgent/containerd/socket'"),
        ("runtimeClass.handler=", "'/runtimeClass/handler'"),
        ("priorityClasses.platformValue=2000000000", "'/priorityClasses/platformValue': maximum"),
        ("admissionPolicy.enabled=maybe", "'/admissionPolicy/enabled': got string, want boolean"),
        ("networkPolicies.enabled=maybe", "'/networkPolicies/enabled': got string, want boolean"),
        ("networkPolicies.acceptUnenforced=maybe", "'/networkPolicies/acceptUnenforced': got string, want boolean"),
        ("preflight.timeoutSeconds=1", "'/preflight/timeoutSeconds': minimum"),
        ("images.pullPolicy=Sometimes", "'/images/pullPolicy'"),
        ("images.gateway=has blanks", "'/images/gateway'"),
        ("apiKeys.me=short", "'/apiKeys/me': minLength: got 5, want 16"),
        ("surprise=1", "additional properties 'surprise' not allowed"),
    ],
)
def test_a_bad_value_is_refused_by_name(setting: str, complaint: str) -> None:
    with pytest.raises(ChartError) as refused:
        render(setting)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("values", "pending"),
    [
        ((), "0"),
        (("capacity.nodesCanBeAdded=true",), "64"),
        (("capacity.nodesCanBeAdded=true", "capacity.pendingPods=7"), "7"),
        (("capacity=null",), "0"),  # as in an upgrade with the values of a chart that had none of them
    ],
)
def test_only_where_nodes_can_be_added_sandboxes_have_pending_pods(values: tuple[str, ...], pending: str) -> None:
    (container,) = named(render(*values), "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"][
        "containers"
    ]
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert told["ROLLBOX_CONTROLPLANE_PENDING_PODS"] == pending


@pytest.mark.parametrize(
    ("values", "shares"),
    [
        ((), ("0.05", "0.125")),
        (("sandboxes.overcommit.cpu=1", "sandboxes.overcommit.memory=0.5"), ("1", "0.5")),
        (("sandboxes.overcommit=null",), ("0.05", "0.125")),  # as in an upgrade with the values of an older chart
    ],
)
def test_the_control_plane_is_told_what_to_request_of_limits_alone(
    values: tuple[str, ...], shares: tuple[str, str]
) -> None:
    (container,) = named(render(*values), "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"][
        "containers"
    ]
    told = {one["name"]: one.get("value") for one in container["env"]}
    found = tuple(told[f"ROLLBOX_CONTROLPLANE_OVERCOMMIT_{resource}"] for resource in ("CPU", "MEMORY"))
    assert found == shares


def test_sandboxes_do_not_share_the_release_namespace() -> None:
    with pytest.raises(ChartError, match=r"sandboxes\.namespace is the release's own"):
        render("sandboxes.namespace=rollbox")


def test_an_external_redis_replaces_the_own_one() -> None:
    manifests = render("redis.url=redis://:secret@elsewhere:6379/1")
    assert not of_kind(manifests, "StatefulSet")
    assert not [one for one in of_kind(manifests, "NetworkPolicy") if one["metadata"]["name"] == "rollbox-redis"]
    assert named(manifests, "Secret", "rollbox-redis")["data"].keys() == {"url"}


def test_the_own_redis_keeps_its_file_where_the_value_says() -> None:
    (own,) = of_kind(render(), "StatefulSet")
    (data,) = [one for one in own["spec"]["template"]["spec"]["volumes"] if one["name"] == "data"]
    assert data == {"name": "data", "emptyDir": {"sizeLimit": "2Gi"}}
    assert "volumeClaimTemplates" not in own["spec"]
    (kept,) = of_kind(
        render("redis.persistence.enabled=true", "redis.persistence.size=5Gi", "redis.persistence.storageClass=fast"),
        "StatefulSet",
    )
    assert [one["name"] for one in kept["spec"]["template"]["spec"]["volumes"]] == ["config"]
    (claim,) = kept["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "data"
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"] == {"requests": {"storage": "5Gi"}}
    # An uninstall leaves nothing.
    assert kept["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"


def test_the_gateway_scales_as_its_values_say() -> None:
    (scaler,) = of_kind(render("gateway.autoscaling.maxReplicas=5"), "HorizontalPodAutoscaler")
    spec = scaler["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 5)
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "rollbox-gateway"}
    fixed = render("gateway.autoscaling.enabled=false", "gateway.replicas=3")
    assert not of_kind(fixed, "HorizontalPodAutoscaler")
    assert named(fixed, "Deployment", "rollbox-gateway")["spec"]["replicas"] == 3


def test_existing_secrets_are_used_and_none_is_made() -> None:
    own = {"apiKeys": "keys", "signingKey": "key", "settingsKey": "digests"}
    chosen = [f"existingSecrets.{name}={value}" for name, value in own.items()]
    manifests = render(*chosen, "redis.existingSecret=store")
    assert not of_kind(manifests, "Secret")
    gateway = named(manifests, "Deployment", "rollbox-gateway")["spec"]["template"]["spec"]["volumes"]
    assert [one["secret"]["secretName"] for one in gateway] == ["key", "digests"]
    volumes = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["volumes"]
    assert [one["secret"]["secretName"] for one in volumes if "secret" in one] == ["keys", "key"]


def test_two_releases_share_no_name_that_is_the_clusters() -> None:
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "Namespace", "PriorityClass"}
    cluster_wide |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    names = [
        {(one["kind"], one["metadata"]["name"]) for one in render(release=release) if one["kind"] in cluster_wide}
        for release in ("one", "two")
    ]
    assert not names[0] & names[1]
