"""The pod of a sandbox: the whole of it once, and what holds for every spec."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster import Boot
from controlplane.cluster.kubernetes.nodes.devices import DeviceClaims
from controlplane.cluster.kubernetes.nodes.lazy import LazyImages
from controlplane.cluster.kubernetes.pods.podspec import PodDefaults, pod, policy_labels, selector
from controlplane.cluster.kubernetes.pods.shard import fnv1a, shard_of
from controlplane.egress import EgressOptions
from controlplane.model import Range, SandboxSpec

GOLDEN = Path(__file__).parent / "pod.json"
VECTORS = Path(__file__).parents[4] / "contract/vectors/shard.json"
BOOT = Boot(ready_token="ready-token", token_public_key="public-key", record='{"some":"record"}')
DEFAULTS = PodDefaults(
    namespace="boxes",
    installation="release",
    sidecar_image="registry.example/rollbox/sidecar:1",
    ready_url="http://10.96.0.7:8082",
    runtime_class="gvisor",
    dns_shards=16,
    priority_class="rollbox-sandbox",
    node_selector={"pool": "sandboxes"},
    tolerations=({"key": "sandboxes", "operator": "Exists"},),
    image_pull_secrets=("regcred",),
    pids_limit=512,
    devices=DeviceClaims("gpu.example.com", "release-gpu"),
)
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")

names = st.text("abcdefghijklmnop/_.-", min_size=1, max_size=20).map(lambda text: f"a{text}a")
texts = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=40)
specs = st.builds(
    SandboxSpec,
    image=st.just("python:3.12-slim"),
    cpu_millicores=st.integers(10, 64_000).map(lambda most: Range(request=max(1, most // 7), limit=most)),
    memory_bytes=st.integers(1 << 24, 1 << 36).map(lambda most: Range(request=most, limit=most)),
    disk_bytes=st.none() | st.integers(1 << 24, 1 << 40),
    gpu=st.integers(0, 16),
    node_selector=st.dictionaries(st.just("zone"), st.just("b")),
    labels=st.dictionaries(names, texts, max_size=5),
    env=st.dictionaries(st.just("SECRET_NAME"), st.just("$(POD_IP)secret-value")),
    cwd=st.just("/srv"),
    user=st.just("nobody"),
)


def test_the_pod_is_as_it_was_agreed() -> None:
    spec = SandboxSpec(image="python:3.12-slim", gpu=1, node_selector={"zone": "b"}, env={"SECRET": "x"})
    made = pod("sb-0123456789abcdef", spec, BOOT, DEFAULTS, 1_700_000_000_000)
    assert json.loads(json.dumps(made)) == json.loads(GOLDEN.read_text())


def test_both_containers_have_each_device_and_a_sandbox_without_has_none() -> None:
    two, none = (pod("sb-1", SandboxSpec(image="a", gpu=count), BOOT, DEFAULTS, 1)["spec"] for count in (2, 0))
    names = [{"name": "gpu-0"}, {"name": "gpu-1"}]
    assert two["resourceClaims"] == [{**one, "resourceClaimTemplateName": "release-gpu"} for one in names]
    assert [one["resources"]["claims"] for one in two["containers"]] == [names, names]
    assert "resourceClaims" not in none
    assert not any("claims" in one["resources"] for one in none["containers"])


def test_a_runtime_for_devices_is_that_of_sandboxes_with_one_and_of_no_other() -> None:
    lazily = LazyImages("gvisor-lazy", "runsc-lazy", ["a"], devices=False)
    defaults = replace(DEFAULTS, devices=DeviceClaims("c", "t", "gvisor-gpu", "runsc-gpu"))
    one, none = (SandboxSpec(image="a", gpu=count) for count in (1, 0))
    assert pod("sb-1", one, BOOT, defaults, 1)["spec"]["runtimeClassName"] == "gvisor-gpu"
    assert pod("sb-1", none, BOOT, defaults, 1)["spec"]["runtimeClassName"] == "gvisor"
    assert pod("sb-1", none, BOOT, defaults, 1, lazily=lazily)["spec"]["runtimeClassName"] == "gvisor-lazy"
    assert pod("sb-1", one, BOOT, DEFAULTS, 1)["spec"]["runtimeClassName"] == "gvisor"


def test_the_sidecar_is_told_of_egress_where_it_is_installed() -> None:
    plain, installed = (
        pod("sb-1", SandboxSpec(image="a"), BOOT, defaults, 1)["spec"]["containers"][0]["env"]
        for defaults in (
            DEFAULTS,
            replace(DEFAULTS, egress=EgressOptions(3128, cached=("pypi.org", "a.test")).of_sidecar),
        )
    )
    assert [one for one in installed if one not in plain] == [
        {"name": "ROLLBOX_SIDECAR_EGRESS_PORT", "value": "3128"},
        {"name": "ROLLBOX_SIDECAR_EGRESS_DNS", "value": "1"},
        {"name": "ROLLBOX_SIDECAR_EGRESS_PACKAGES", "value": "pypi.org,a.test"},
    ]


def test_the_sidecar_is_told_of_an_interpreter_that_is_to_wait() -> None:
    plain, kept = (
        pod("sb-1", SandboxSpec(image="a"), boot, DEFAULTS, 1)["spec"]["containers"][0]["env"]
        for boot in (BOOT, replace(BOOT, interpreter="python"))
    )
    assert [one for one in kept if one not in plain] == [{"name": "ROLLBOX_SIDECAR_INTERPRETER", "value": "python"}]


def test_a_plain_installation_sends_no_empty_fields() -> None:
    defaults = PodDefaults("boxes", "r", "s", "http://1.2.3.4:1", "gvisor", 16)
    made = pod("sb-1", SandboxSpec(image="a"), BOOT, defaults, 1)["spec"]
    assert made.keys().isdisjoint({"nodeSelector", "tolerations", "imagePullSecrets", "priorityClassName"})


@given(specs)
def test_every_container_has_requests_and_limits(spec: SandboxSpec) -> None:
    for container in pod("sb-1", spec, BOOT, DEFAULTS, 1)["spec"]["containers"]:
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        assert len(container["resources"].get("claims", ())) == spec.gpu
        assert set(requests) == set(limits) >= {"cpu", "memory", "ephemeral-storage"}
        for name, wanted in requests.items():
            assert int(wanted.removesuffix("m")) <= int(limits[name].removesuffix("m"))


@given(specs)
def test_nothing_is_privileged_and_nothing_of_the_platform_is_inside(spec: SandboxSpec) -> None:
    made = pod("sb-1", spec, BOOT, DEFAULTS, 1)["spec"]
    assert made["automountServiceAccountToken"] is False
    assert made["enableServiceLinks"] is False
    assert made["restartPolicy"] == "Never"
    assert made["runtimeClassName"] == "gvisor"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & made.keys()
    for container in made["containers"]:
        assert container["securityContext"]["privileged"] is False
    target = made["containers"][1]
    assert "env" not in target
    assert "add" not in target["securityContext"]["capabilities"]
    assert target["volumeMounts"][0]["readOnly"] is True
    assert target["image"] == spec.image


@given(specs)
def test_no_environment_of_the_user_is_in_the_pod(spec: SandboxSpec) -> None:
    text = json.dumps(pod("sb-1", spec, BOOT, DEFAULTS, 1))
    assert "SECRET_NAME" not in text
    assert "secret-value" not in text


@given(specs, st.from_regex(r"sb-[a-z0-9]{16}", fullmatch=True))
def test_labels_are_labels_whatever_the_spec_says(spec: SandboxSpec, sandbox_id: str) -> None:
    made = pod(sandbox_id, spec, BOOT, DEFAULTS, 1)
    labels: dict[str, Any] = made["metadata"]["labels"]
    assert all(LABEL.fullmatch(value) for value in labels.values())
    assert made["spec"]["subdomain"] == f"shard-{labels['rollbox.dev/shard']}"
    assert made["spec"]["hostname"] == sandbox_id


def test_nodes_are_preferred_or_avoided_and_never_required() -> None:
    avoiding = Boot("token", "key", "record", avoid=("full",))
    made = pod("sb-1", SandboxSpec(image="a"), avoiding, DEFAULTS, 1, near=[("n1", 100), ("n2", 50)])["spec"]
    (kind, wishes), *more = made["affinity"]["nodeAffinity"].items()
    assert (kind, more) == ("preferredDuringSchedulingIgnoredDuringExecution", [])
    fields = [(one["weight"], one["preference"]["matchFields"]) for one in wishes]
    assert fields == [
        (100, [{"key": "metadata.name", "operator": "NotIn", "values": ["full"]}]),
        (100, [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]),
        (50, [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]),
    ]
    assert made["nodeSelector"] == DEFAULTS.node_selector
    assert "affinity" not in pod("sb-1", SandboxSpec(image="a"), BOOT, DEFAULTS, 1)["spec"]


def test_where_commands_count_for_the_sidecar_it_carries_their_limits() -> None:
    spec = SandboxSpec(image="a", memory_bytes=Range(request=1 << 30, limit=1 << 30))
    defaults = PodDefaults("boxes", "r", "s", "http://1.2.3.4:1", "runc", 16, commands_in_sidecar=True)
    sidecar = pod("sb-1", spec, BOOT, defaults, 1)["spec"]["containers"][0]
    assert int(sidecar["resources"]["limits"]["memory"]) > 1 << 30
    assert int(sidecar["resources"]["requests"]["memory"]) < 1 << 30


def test_what_only_policies_take_for_a_sandbox_is_none_for_the_control_plane() -> None:
    wanted = dict.fromkeys(("rollbox.dev/installation", "rollbox.dev/sandbox"))
    assert selector("release") == "rollbox.dev/installation=release,rollbox.dev/sandbox"
    labels = pod("sb-1", SandboxSpec(image="a"), BOOT, DEFAULTS, 1)["metadata"]["labels"]
    assert wanted.keys() <= labels.keys()
    assert policy_labels("release").items() <= labels.items()
    assert not wanted.keys() <= policy_labels("release").keys()


def test_labels_name_no_sandbox() -> None:
    """Network plugins make an identity of each set of labels, and count them."""
    names = [f"sb-{number}" for number in range(100)]
    made = [pod(name, SandboxSpec(image="a"), BOOT, DEFAULTS, 1)["metadata"]["labels"] for name in names]
    assert len({tuple(sorted(labels.items())) for labels in made}) == DEFAULTS.dns_shards


def test_shards_are_those_of_the_contract() -> None:
    for one in json.loads(VECTORS.read_text()):
        assert fnv1a(one["id"].encode()) == one["fnv1a"]
        assert [shard_of(one["id"], count) for count in (16, 7, 1)] == [
            one["shard_of_16"],
            one["shard_of_7"],
            one["shard_of_1"],
        ]
    # From the function's own published vectors.
    assert (fnv1a(b""), fnv1a(b"a"), fnv1a(b"foobar")) == (0x811C9DC5, 0xE40C292C, 0xBF9CF968)
