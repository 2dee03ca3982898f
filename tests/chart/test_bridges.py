"""The bridges in the chart: absent by default; where enabled, programs that reach the gateway alone."""

import json
from typing import Any

import pytest

from rollbox_bridges.e2b import __main__ as e2b
from rollbox_bridges.fusion import __main__ as fusion
from rollbox_bridges.fusion.languages import RECIPES
from rollbox_bridges.prime import __main__ as prime
from rollbox_bridges.prime.settings import DEFAULT_REGION_LABEL
from tests.support.helm import CHART, ChartError, Manifest, named, pods, render

PROTOCOLS = ("e2b", "prime", "fusion")
# Those that hand out credentials for a sandbox, and know alone what goes on in it by them.
SEALING = ("e2b", "prime")
ALL = tuple(f"bridges.{one}.enabled=true" for one in PROTOCOLS)


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render(*ALL)


def _pod(manifests: list[Manifest], protocol: str) -> dict[str, Any]:
    return dict(named(manifests, "Deployment", f"rollbox-bridge-{protocol}")["spec"]["template"]["spec"])


def _args(manifests: list[Manifest], protocol: str) -> list[str]:
    return [*_pod(manifests, protocol)["containers"][0]["args"]]


def test_nothing_of_them_is_there_by_default() -> None:
    assert "bridge" not in str(render())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_is_there_without_the_others(protocol: str) -> None:
    manifests = render(f"bridges.{protocol}.enabled=true")
    assert _pod(manifests, protocol)["containers"][0]["command"] == ["python3", "-m", f"rollbox_bridges.{protocol}"]
    assert not [other for other in PROTOCOLS if other != protocol and f"bridge-{other}" in str(manifests)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_they_have_no_powers_and_are_bounded(manifests: list[Manifest], protocol: str) -> None:
    pod = _pod(manifests, protocol)
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsUser"] == 65532
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert (
        container["image"]
        == named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"][0]["image"]
    )
    for side in ("requests", "limits"):
        assert {"cpu", "memory"} <= container["resources"][side].keys()
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_they_are_reached_by_all_and_reach_the_gateway_alone(manifests: list[Manifest], protocol: str) -> None:
    name = f"rollbox-bridge-{protocol}"
    policy = named(manifests, "NetworkPolicy", name)["spec"]
    assert policy["ingress"] == [{"ports": [{"port": 8080, "protocol": "TCP"}]}]
    resolvers, gateway = policy["egress"]
    assert {port["port"] for port in resolvers["ports"]} == {53}
    (to,) = gateway["to"]
    assert to["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "gateway"
    assert named(manifests, "PodDisruptionBudget", name)["spec"]["maxUnavailable"] == 1
    service = named(manifests, "Service", name)["spec"]
    assert service["ports"][0]["targetPort"] == "http"
    assert service.get("sessionAffinity") == ("ClientIP" if protocol in SEALING else None)


def test_e2bs_bridge_alone_has_a_folder_for_files_and_it_is_bounded(manifests: list[Manifest]) -> None:
    written = {}
    for protocol in PROTOCOLS:
        pod = _pod(manifests, protocol)
        names = {one["name"]: one["mountPath"] for one in pod["containers"][0].get("volumeMounts", ())}
        written[protocol] = {names[one["name"]]: one["emptyDir"] for one in pod.get("volumes", ()) if "emptyDir" in one}
    assert written == {"e2b": {"/tmp": {"sizeLimit": "6Gi"}}, "prime": {}, "fusion": {}}


def test_their_options_are_those_of_the_programs() -> None:
    told = render(
        *ALL,
        "bridges.e2b.templates.mine=registry.example.com/mine:1",
        "bridges.e2b.domain=sandboxes.example.com",
        "bridges.e2b.privatePorts=true",
        "bridges.e2b.buildEgress=mirror",
        "bridges.prime.images.theirs=registry.example.com/mine:1",
        "bridges.prime.publicUrl=https://prime.example.com",
        "bridges.prime.arch=arm64",
        "bridges.prime.gpuLabel=nvidia.com/gpu.product",
        "bridges.prime.egress=offline",
        "bridges.fusion.languages.cpp=gcc:14",
        "bridges.fusion.memory=512Mi",
        "bridges.fusion.egress=offline",
        "gateway.service.port=8000",
    )
    of_e2b = e2b.parser().parse_args(_args(told, "e2b"))
    assert (of_e2b.template, of_e2b.domain, of_e2b.private_ports, of_e2b.build_egress) == (
        ["mine=registry.example.com/mine:1"],
        "sandboxes.example.com",
        True,
        "mirror",
    )
    of_prime = prime.parser().parse_args(_args(told, "prime"))
    assert (of_prime.image, of_prime.public_url) == (
        ["theirs=registry.example.com/mine:1"],
        "https://prime.example.com",
    )
    assert (of_prime.arch, of_prime.region_label, of_prime.gpu_label, of_prime.egress) == (
        "arm64",
        DEFAULT_REGION_LABEL,
        "nvidia.com/gpu.product",
        "offline",
    )
    given = fusion.parser().parse_args(_args(told, "fusion"))
    assert given.url == of_e2b.url == of_prime.url == "http://rollbox-gateway.rollbox.svc.cluster.local:8000"
    settings = fusion.settings_of(given)
    assert (settings.images, settings.memory, settings.egress) == ({"cpp": "gcc:14"}, "512Mi", "offline")
    assert (settings.warm, settings.at_once, settings.waiting, settings.keyless) == (4, 64, 1000, False)


def test_only_those_that_hand_out_credentials_hold_the_secret_that_seals_them(manifests: list[Manifest]) -> None:
    having = [name for name, pod in pods(manifests) if "rollbox-bridges-key" in str(pod["spec"])]
    assert {*having} == {f"Deployment rollbox-bridge-{one}" for one in SEALING}
    alone = [str(render(f"bridges.{one}.enabled=true")) for one in PROTOCOLS]
    assert ["'rollbox-bridges-key'" in one for one in alone] == [one in SEALING for one in PROTOCOLS]
    assert len(named(manifests, "Secret", "rollbox-bridges-key")["data"]["key"]) > 64
    own = render(*ALL, "existingSecrets.bridgesKey=mine")
    assert "rollbox-bridges-key" not in str(own)
    assert [_pod(own, one)["volumes"][0]["secret"]["secretName"] for one in SEALING] == ["mine", "mine"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_keys_of_clients_are_a_secret_of_the_operators(protocol: str) -> None:
    manifests = render(*ALL, f"bridges.{protocol}.keysSecret=clients")
    assert "/etc/rollbox/keys/keys.toml" in _args(manifests, protocol)
    assert "clients" in [one["secret"]["secretName"] for one in _pod(manifests, protocol)["volumes"] if "secret" in one]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_certificate_has_them_serve_https_alone(protocol: str) -> None:
    plain, manifests = render(*ALL), render(*ALL, f"bridges.{protocol}.tlsSecret=certificate")
    assert "tls" not in str(_pod(plain, protocol))
    assert _args(manifests, protocol)[-4:] == [
        "--tls-certificate",
        "/etc/rollbox/tls/tls.crt",
        "--tls-key",
        "/etc/rollbox/tls/tls.key",
    ]
    pod = _pod(manifests, protocol)
    (container,) = pod["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    # A folder of its own: a file that is mounted by itself would not change with the Secret.
    assert {"name": "tls", "mountPath": "/etc/rollbox/tls", "readOnly": True} in container["volumeMounts"]
    assert {"name": "tls", "secret": {"secretName": "certificate"}} in pod["volumes"]


@pytest.mark.parametrize(
    "value",
    [
        "bridges.fusion.languages.cobol=x",
        "bridges.fusion.keyless=true",
        "bridges.fusion.atOnce=0",
        "bridges.e2b.replicas=0",
        "bridges.e2b.image=has blanks",
        "bridges.fusion.image=",
        "bridges.prime.later=true",
        "bridges.prime.images.odd=",
        "bridges.prime.publicUrl=prime.example.com",
        "bridges.prime.regionLabel=",
        "bridges.docker.enabled=true",
    ],
)
def test_values_that_are_not_sound_are_refused(value: str) -> None:
    with pytest.raises(ChartError, match="/bridges"):
        render(*ALL, value)


def test_the_schema_knows_the_languages_of_the_bridge() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = schema["properties"]["bridges"]["properties"]["fusion"]["properties"]["languages"]["properties"]
    assert [*known] == [*RECIPES]
