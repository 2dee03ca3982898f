"""What `helm test` runs, with the environment that the chart gives it; gateway and API server are played."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any, Final, Self, cast

import pytest

from controlplane.reach.attempts import Ending, Seen, plain
from controlplane.reach.ways import Way, loaded
from rollbox import Sandbox
from rollbox.egress_check import Found, Place
from rollbox.egress_check.sandboxed import Inside
from rollbox.errors import ImagePullFailed
from tests.support.helm import CHART, named, render

PODS: Final = "/api/v1/namespaces/rollbox-sandboxes/pods"
READY: Final = "readiness port"
FORBIDDEN: Final = (
    "API server",
    "kubelet of its node",
    "metadata service",
    "cluster DNS",
    "internet",
    "gateway",
    "agent port of another sandbox",
)


class PlayedSandbox:
    """One that runs what it is told, and sees what it is told."""

    made: Final[list[str]] = []
    kernel = "Linux version 4.4.0 gVisor"
    inside: Ending = "closed"
    ways: Final[list[Way]] = []

    @classmethod
    def create(cls, image: str, ttl: float) -> Self:
        one = cls()
        one.id = f"sb-{len(cls.made)}"
        cls.made.append(image)
        return one

    id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        return

    def exec(self, command: str | list[str], timeout: float, check: bool = False) -> SimpleNamespace:
        if isinstance(command, str):
            return SimpleNamespace(exit_code=0, stdout=self.kernel)
        assert command[:3] == ["python3", "-m", "controlplane.reach"]
        self.ways[:] = loaded(command[3])
        seen = {way.name: Seen("open" if way.must_work else self.inside) for way in self.ways}
        return SimpleNamespace(exit_code=0, stdout=json.dumps({"kernel": self.kernel, "seen": plain(seen)}))


def call(method: str, path: str, body: object = None) -> Mapping[str, Any]:
    addresses = {
        f"{PODS}/sb-0": {"podIP": "10.1.0.3", "hostIP": "10.0.0.8"},
        f"{PODS}/sb-1": {"podIP": "10.1.0.4", "hostIP": "10.0.0.9"},
    }
    assert method == "GET"
    return {"status": addresses[path]}


class PlayedClient:
    """One whose sandboxes need not be played: the check is."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return


class PlayedCheck:
    """What a sandbox is to try of egress, and what it finds."""

    def __init__(self, *found: Found) -> None:
        self.found = found
        self.tried: list[Place] = []
        self.probe: Place | None = None
        self.image = ""

    async def __call__(
        self, _: object, image: str, *, probe: Place | None, inside: Sequence[Place], of: Inside
    ) -> Sequence[Found]:
        self.image, self.probe = image, probe
        self.tried = [*inside, *await of(cast("Sandbox", SimpleNamespace(id="sb-1")))]
        return self.found


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the pod of `helm test` runs."""
    monkeypatch.syspath_prepend(str(CHART / "files"))
    (container,) = named(render(), "Pod", "rollbox-test")["spec"]["containers"]
    given = {one["name"]: one["value"] for one in container["env"]}
    # No cluster's names lead anywhere here.
    given |= {"GATEWAY": "127.0.0.2:80", "READY": "127.0.0.3:8082"}
    given |= {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    module = importlib.import_module("hooks.helm_test")
    network = importlib.import_module("hooks.network")
    monkeypatch.setattr(network, "name_server", lambda _: "10.96.0.10")
    monkeypatch.setattr(network.attempts, "try_all", lambda ways: {way.name: Seen("open") for way in ways})
    monkeypatch.setattr(module, "call", call)
    monkeypatch.setattr(module, "Sandbox", PlayedSandbox)
    PlayedSandbox.made.clear()
    return module


def test_a_sandbox_runs_a_command_and_another_one_tries_what_it_reaches(
    hook: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hook.main() == 0
    said = capsys.readouterr().out
    assert "kernel Linux version 4.4.0 gVisor" in said
    assert "the cluster's network plugin enforces NetworkPolicy" in said
    assert said.count("\n  ok: ") == len(FORBIDDEN) + 1
    assert [image.rpartition("/")[2] for image in PlayedSandbox.made] == ["python:0.1.0", "controlplane:0.1.0"]
    addresses = {way.name: way.address for way in PlayedSandbox.ways}
    assert addresses.keys() == {*FORBIDDEN, READY}
    assert addresses["kubelet of its node"] == "10.0.0.9:10250"
    assert addresses["agent port of another sandbox"] == "10.1.0.3:7070"
    assert addresses["gateway"] == "127.0.0.2:80"
    assert addresses[READY] == "127.0.0.3:8082"


def test_a_sandbox_that_does_not_start_is_a_sentence_with_what_to_do(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def create(image: str, ttl: float) -> PlayedSandbox:
        raise ImagePullFailed(f"registry localhost:5000: it cannot be reached: {image}")

    monkeypatch.setattr(PlayedSandbox, "create", create)
    assert hook.main() == 1
    told = capsys.readouterr().err
    assert told.startswith("rollbox test: image_pull_failed: registry localhost:5000: it cannot be reached")
    assert "check the registry" in told
    assert told.count("\n") == 1


def test_sandboxes_that_get_out_fail_it_unless_the_risk_is_accepted(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PlayedSandbox, "inside", "open")
    assert hook.main() == 1
    told = capsys.readouterr().err
    assert "does not enforce NetworkPolicy" in told
    assert "BROKEN: a sandbox reaches the agent port of another sandbox (10.1.0.3:7070)" in told
    PlayedSandbox.made.clear()
    monkeypatch.setenv("ACCEPT_UNENFORCED", "true")
    assert hook.main() == 0
    assert "WARNING: the cluster's network plugin does not enforce NetworkPolicy" in capsys.readouterr().out


WELL = Found("refusal", True, "under `offline` the proxy answers 403 in 0.01 s")


def test_without_egress_it_is_one_line(hook: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert hook.main() == 0
    assert capsys.readouterr().out.count("egress") == 2
    (container,) = named(render(), "Pod", "rollbox-test")["spec"]["containers"]
    assert {"name": "EGRESS", "value": "false"} in container["env"]


def test_with_egress_a_sandbox_tries_it(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = with_egress(hook, monkeypatch, PlayedCheck(WELL), "egress.probe=index.test:8443")
    assert hook.main() == 0
    assert "egress refuses what it must\n  ok: refusal: under `offline`" in capsys.readouterr().out
    assert played.image.rpartition("/")[2] == "controlplane:0.1.0"
    assert played.probe == Place("allowed host", "index.test", 8443)
    assert {one.name: (one.host, one.port) for one in played.tried} == {
        "API server": ("10.96.0.1", 443),
        "gateway": ("127.0.0.2", 80),
        "kubelet of its node": ("10.0.0.9", 10250),
    }


def test_egress_that_is_not_as_it_should_be_fails_it_with_what_to_do(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Found("API server", False, "a sandbox reaches it", "Put its range into egress.blockedCidrs.")
    assert with_egress(hook, monkeypatch, PlayedCheck(WELL, wrong)).probe is None
    assert hook.main() == 1
    told = capsys.readouterr().err
    assert "Put its range into egress.blockedCidrs.\n  ok: refusal" in told
    assert "BROKEN: API server: a sandbox reaches it" in told


def with_egress(hook: ModuleType, monkeypatch: pytest.MonkeyPatch, check: PlayedCheck, *values: str) -> PlayedCheck:
    """The environment of a chart that has it, and a check that is played."""
    (container,) = named(render("egress.enabled=true", *values), "Pod", "rollbox-test")["spec"]["containers"]
    for one in container["env"]:
        if one["name"].startswith("EGRESS"):
            monkeypatch.setenv(one["name"], one["value"])
    monkeypatch.setattr(hook, "Client", PlayedClient)
    monkeypatch.setattr(hook, "check", check)
    return check


def test_another_kernel_fails_it(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PlayedSandbox, "kernel", "Linux version 6.1")
    assert hook.main() == 1
    assert "Linux version 6.1" in capsys.readouterr().err
