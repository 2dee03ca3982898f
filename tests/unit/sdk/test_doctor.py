"""`rollbox doctor`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from typer.testing import CliRunner

from rollbox import egress_check
from rollbox.cli import app, doctor
from rollbox.egress_check import Found, Place
from tests.support.gateway_fake import FakeGateway
from tests.support.silent_port import silent_port


@pytest.fixture(autouse=True)
def client_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the server's package, unless a test replaces it."""
    monkeypatch.setattr(doctor, "_EMBEDDED", "no_such_package")


def examine(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    return result.exit_code, result.stdout


def machine(monkeypatch: pytest.MonkeyPatch, *checks: SimpleNamespace) -> None:
    async def found(state_dir: Path) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="state", ok=True, detail=str(state_dir), fix=""), *checks]

    for name, members in (("probe", {"probe": found}), ("options", {"default_state_dir": lambda _: Path("/run")})):
        module = ModuleType(f"fake.{name}")
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, f"fake.{name}", module)
    monkeypatch.setitem(sys.modules, "fake", ModuleType("fake"))
    monkeypatch.setattr(doctor, "_EMBEDDED", "fake")


def test_a_client_with_a_gateway_is_healthy(apart: FakeGateway) -> None:
    code, shown = examine("--json")
    told = json.loads(shown)
    assert (code, told["ok"]) == (0, True)
    assert [check["name"] for check in told["checks"]] == ["settings", "gateway", "egress"]
    assert "isolation runc" in told["checks"][1]["detail"]
    assert "gateway" in examine()[1]


def test_egress_is_tried_with_the_image_that_is_named_and_told_by_check(
    apart: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Place | None, Sequence[Place]]] = []

    async def check(_: object, image: str, *, probe: Place | None, inside: Sequence[Place]) -> list[Found]:
        asked.append((image, probe, inside))
        return [Found("refusal", True, "403"), Found("allowed host", False, "no answer", "See the server.")]

    monkeypatch.setattr(egress_check, "check", check)
    code, shown = examine("--image", "python:3.12-slim", "--reach", "index.test:8443", "--json")
    told = {one["name"]: one for one in json.loads(shown)["checks"]}
    assert code == 1
    assert told["egress: refusal"]["ok"]
    assert told["egress: allowed host"]["fix"] == "See the server."
    ((image, probe, (gateway,)),) = asked
    assert (image, probe) == ("python:3.12-slim", Place("allowed host", "index.test", 8443))
    assert (gateway.name, gateway.host) == ("gateway", "127.0.0.1")
    assert "HOST:PORT" in examine("--reach", "http://index.test")[1]


def test_a_client_without_a_gateway_is_not() -> None:
    code, shown = examine("--json")
    assert code == 1
    assert "rollbox up" in json.loads(shown)["checks"][0]["fix"]


def test_a_gateway_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOX_API_KEY", "k")
    with silent_port() as port:
        monkeypatch.setenv("ROLLBOX_URL", f"http://127.0.0.1:{port}")
        code, shown = examine()
    assert code == 1
    assert "missing" in shown


def test_a_machine_that_can_run_the_stack_needs_no_gateway_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, SimpleNamespace(name="engine", ok=True, detail="podman 4.3", fix=""))
    assert examine()[0] == 0


def test_a_machine_without_an_engine_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = SimpleNamespace(name="engine", ok=False, detail="no socket answers", fix="Install podman.")
    machine(monkeypatch, wrong)
    code, shown = examine("--json")
    checks = json.loads(shown)["checks"]
    assert code == 1
    assert checks[0]["detail"].endswith("/state")
    assert checks[1] == {
        "name": "engine",
        "ok": False,
        "detail": "no socket answers",
        "fix": "Install podman.",
        "needed": True,
    }
    assert checks[2]["needed"] is False


def test_what_to_do_stands_below_what_is_wrong_in_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = SimpleNamespace(name="engine", ok=False, detail="no socket " + "answers " * 20, fix="Install podman. " * 9)
    machine(monkeypatch, wrong)
    monkeypatch.setenv("ROLLBOX_STATE_DIR", "/s")
    code, piped = examine()
    assert code == 1
    engine = [line for line in piped.splitlines() if "engine" in line]
    assert engine[0].startswith("missing  engine")
    assert engine[-1] == "not ready: engine"
    monkeypatch.setattr("rollbox.cli.output.on_terminal", lambda: True)
    for columns in (80, 60, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        shown = examine()[1]
        assert max(map(len, shown.splitlines())) <= columns
        assert shown.split() == piped.split()
        assert any(line.strip().startswith("-> Install podman.") for line in shown.splitlines())


def test_a_cluster_is_tried_with_the_image_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[Path | str, ...]] = []

    async def found(kubeconfig: Path, *words: str) -> list[SimpleNamespace]:
        asked.append((kubeconfig, *words))
        return [SimpleNamespace(name="network policies", ok=False, detail="ignored", fix="Use another plugin.")]

    module = ModuleType("fake_cluster")
    vars(module).update({"probe": found})
    monkeypatch.setitem(sys.modules, "fake_cluster", module)
    monkeypatch.setattr(doctor, "_CLUSTER", "fake_cluster")
    where = ("--cluster", "--kubeconfig", str(tmp_path / "k"), "--release", "one")
    code, shown = examine(*where, "--image", "r/controlplane:1", "--reach", "a.test")
    assert asked == [(tmp_path / "k", "gvisor", "r/controlplane:1", "a.test", "one")]
    assert code == 1
    assert "not ready: network policies" in shown
    # Of one machine there is no release: it would be accepted and ignored.
    assert examine("--release", "one")[0] == 2
