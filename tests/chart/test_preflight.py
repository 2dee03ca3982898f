"""What the preflight tries and says, with the settings that the chart gives it and an API server that is played."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from functools import cache
from ipaddress import IPv4Address
from types import ModuleType
from typing import Any, Final

import pytest

from controlplane.reach.attempts import Ending, Seen, plain
from controlplane.reach.ways import Way, loaded
from tests.support.helm import CHART, named, render

READY: Final = "readiness port"
FORBIDDEN: Final = (
    "API server",
    "kubelet of its node",
    "metadata service",
    "cluster DNS",
    "internet",
    "port of another pod",
)
ENFORCED: Final[dict[str, Ending]] = {**dict.fromkeys(FORBIDDEN, "closed"), READY: "open"}
IGNORED: Final[dict[str, Ending]] = dict.fromkeys((*FORBIDDEN, READY), "open")
ENVIRONMENT: Final = {
    "POD_IP": "127.0.0.1",
    "POD_NAME": "rollbox-preflight-x",
    "POD_UID": "u1",
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
}


class Played:
    """An API server on which one probe runs, and what an unrestricted pod sees."""

    def __init__(self, inside: Mapping[str, Ending], outside: Mapping[str, Ending], message: str = "") -> None:
        self.inside = {name: Seen(ending) for name, ending in inside.items()}
        self.outside = outside
        self.message = message or json.dumps({"kernel": "Linux gVisor", "seen": plain(self.inside)})
        self.calls: list[str] = []
        self.pod: dict[str, Any] = {}

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        self.calls.append(f"{method} {path}")
        if method == "POST":
            self.pod = body or {}
        if "events" in path:
            return {"items": []}
        ended = [{"image": "i", "state": {"terminated": {"message": self.message}}}]
        status = {"phase": "Succeeded", "hostIP": "10.0.0.9", "containerStatuses": ended}
        return {"metadata": {"uid": "u", "namespace": "rollbox"}, "status": status}

    def gone(self, method: str, path: str, body: dict[str, Any] | None = None) -> bool:
        self.calls.append(f"{method} {path}")
        return True

    def look(self, ways: list[Way]) -> dict[str, Seen]:
        assert all(way.must_work and "HOST_IP" not in way.host for way in ways)
        return {way.name: Seen(self.outside[way.name]) for way in ways}


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the preflight, as its pod has it."""
    monkeypatch.syspath_prepend(str(CHART / "files"))
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    module = importlib.import_module("hooks.preflight")
    network = importlib.import_module("hooks.network")
    monkeypatch.setattr(network, "name_server", lambda _: "10.96.0.10")
    return module


@cache
def rendered(*values: str) -> str:
    """The settings that the preflight of these values has."""
    return str(named(render(*values), "ConfigMap", "rollbox-preflight")["data"]["settings.json"])


def preflight(hook: ModuleType, monkeypatch: pytest.MonkeyPatch, played: Played, *values: str) -> str:
    probe, network = importlib.import_module("hooks.probe"), importlib.import_module("hooks.network")
    monkeypatch.setattr(probe, "call", played.call)
    monkeypatch.setattr(probe, "gone", played.gone)
    monkeypatch.setattr(network.attempts, "try_all", played.look)
    settings = json.loads(rendered(*values))
    if settings["network"]:
        # Others on this machine may have these.
        settings["network"] |= {"readyPort": 0, "otherPort": 0}
    try:
        return str(hook.preflight(settings))
    finally:
        assert played.calls[-1] == "DELETE /api/v1/namespaces/rollbox/pods/rollbox-preflight-probe"


def test_the_preflight_tries_what_must_not_work_and_what_must(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(ENFORCED, IGNORED)
    said = preflight(hook, monkeypatch, played)
    assert "the cluster's network plugin enforces NetworkPolicy" in said
    assert said.count("\n  ok: ") == len(ENFORCED)
    assert "10.0.0.9:10250" in said
    (container,) = played.pod["spec"]["containers"]
    ways = {way.name: way for way in loaded(container["command"][3])}
    assert ways.keys() == ENFORCED.keys()
    assert [name for name, way in ways.items() if way.must_work] == [READY]
    assert {way.host for way in ways.values()} == {
        "10.96.0.1",
        "10.96.0.10",
        "$(HOST_IP)",
        "127.0.0.1",
        "169.254.169.254",
        "1.1.1.1",
    }
    # Should the hook be killed, the probe goes with its pod.
    assert [one["uid"] for one in played.pod["metadata"]["ownerReferences"]] == ["u1"]


def test_a_plugin_that_ignores_policies_fails_the_install_with_what_helps(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="does not enforce NetworkPolicy") as refused:
        _raised(hook, monkeypatch, Played(IGNORED, IGNORED))
    text = str(refused.value)
    assert text.startswith("nothing was changed: ")
    assert "such as Cilium" in text
    assert "networkPolicies.acceptUnenforced=true" in text
    assert "BROKEN: a sandbox reaches the API server (10.96.0.1:443)" in text


def test_an_accepted_risk_is_a_warning(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    said = preflight(hook, monkeypatch, Played(IGNORED, IGNORED), "networkPolicies.acceptUnenforced=true")
    assert "WARNING: the cluster's network plugin does not enforce NetworkPolicy" in said


def test_what_would_not_work_is_no_risk_to_accept(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    shut = Played({**ENFORCED, READY: "closed"}, IGNORED)
    with pytest.raises(RuntimeError, match="does not reach the readiness port") as refused:
        _raised(hook, monkeypatch, shut, "networkPolicies.acceptUnenforced=true")
    assert "acceptUnenforced" not in str(refused.value)


def test_a_probe_that_fails_is_told_in_its_own_words(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="no such module"):
        _raised(hook, monkeypatch, Played({}, {}, message="no such module"))


def test_another_kernel_is_refused(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    report = json.dumps({"kernel": "Linux 6.1", "seen": {}})
    with pytest.raises(RuntimeError, match="its handler does not isolate"):
        _raised(hook, monkeypatch, Played({}, {}, message=report))


def test_without_policies_only_the_kernel_is_looked_at(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played({}, {})
    said = preflight(hook, monkeypatch, played, "networkPolicies.enabled=false")
    assert said.endswith("'Linux gVisor'")
    assert loaded(played.pod["spec"]["containers"][0]["command"][3]) == []


ON = ("egress.enabled=true",)


def test_with_egress_the_clusters_own_addresses_are_those_that_it_refuses(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = preflight(hook, monkeypatch, Played(ENFORCED, IGNORED), *ON)
    assert "egress refuses the cluster's own addresses (API server, cluster DNS, node of the probe)" in said
    assert "egress" not in preflight(hook, monkeypatch, Played(ENFORCED, IGNORED))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((), r"the API server \(203\.0\.113\.1\) through egress: put the ranges into egress\.blockedCidrs"),
        (
            ("egress.blockedCidrs[0]=203.0.113.0/24", "egress.allowedPrivateCidrs[0]=10.0.0.0/16"),
            "the node of the probe",
        ),
    ],
)
def test_addresses_of_the_cluster_that_egress_would_reach_fail_the_install(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], said: str
) -> None:
    # What documents call public is not, for Python.
    network = importlib.import_module("hooks.egress")
    monkeypatch.setattr(network, "ip_address", PublicDocuments)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "203.0.113.1")
    with pytest.raises(RuntimeError, match=said) as refused:
        _raised(hook, monkeypatch, Played(ENFORCED, IGNORED), *ON, *values)
    assert str(refused.value).startswith("nothing was changed: ")


class PublicDocuments(IPv4Address):
    """An address; those that are made for documents are public."""

    @property
    def is_global(self) -> bool:
        return str(self).startswith("203.0.113.")


def _raised(hook: ModuleType, monkeypatch: pytest.MonkeyPatch, played: Played, *values: str) -> None:
    """As ``preflight``; its error is the hook's own, which no other module knows."""
    error = importlib.import_module("hooks.api").HookError
    try:
        preflight(hook, monkeypatch, played, *values)
    except error as told:
        raise RuntimeError(str(told)) from told
