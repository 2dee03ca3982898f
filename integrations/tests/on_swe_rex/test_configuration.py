"""Deployments by their configuration, and calls from loops of their own, as SWE-agent has both."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from pydantic import BaseModel, ValidationError, create_model
from swerex.deployment import config
from swerex.deployment.config import LocalDeploymentConfig, get_deployment
from swerex.deployment.hooks.status import SetStatusDeploymentHook
from swerex.runtime.abstract import BashAction, BashInterruptAction, CreateBashSessionRequest

from on_swe_rex.deployments import made
from rollbox import Client
from rollbox_integrations.swe_rex import RollboxDeployment, RollboxDeploymentConfig, register
from rollbox_integrations.versions import require


def environment() -> type[BaseModel]:
    """A model with the union as it is now, like SWE-agent's."""
    return create_model("EnvironmentConfig", deployment=(config.DeploymentConfig, ...))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> type[BaseModel]:
    monkeypatch.setattr(config, "DeploymentConfig", config.DeploymentConfig)
    register()
    register()
    return environment()


def test_a_type_among_those_of_swe_rex(registered: type[BaseModel]) -> None:
    ours = registered.model_validate({"deployment": {"type": "rollbox", "image": "a", "cpu": 2}})
    assert getattr(ours, "deployment") == RollboxDeploymentConfig(image="a", cpu=2)  # noqa: B009 - made here
    local = registered.model_validate({"deployment": {"type": "local"}})
    assert isinstance(getattr(local, "deployment"), LocalDeploymentConfig)  # noqa: B009 - made here
    kept = registered.model_validate(ours.model_dump())
    assert kept == ours


def test_what_it_does_not_know_is_refused(registered: type[BaseModel]) -> None:
    with pytest.raises(ValidationError, match="memroy"):
        registered.model_validate({"deployment": {"type": "rollbox", "memroy": 1}})


def test_one_that_comes_too_late_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DeploymentConfig", config.DeploymentConfig)
    monkeypatch.setitem(sys.modules, "sweagent.environment.swe_env", sys)
    with pytest.raises(RuntimeError, match="too late: sweagent"):
        register()


def test_without_swe_agent_its_command_line_says_so() -> None:
    words = [sys.executable, "-m", "rollbox_integrations.swe_rex", "run", "--help"]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (told.returncode, "SWE-agent is not installed" in told.stderr) == (1, True)


def test_an_older_swe_rex_is_refused() -> None:
    with pytest.raises(ImportError, match=r"swe-rex .* is here; rollbox works with 99 and newer"):
        require("swe-rex", "99", "swe-rex")


def test_each_call_may_have_a_loop_of_its_own() -> None:
    steps: list[tuple[str, str]] = []
    deployment = get_deployment(made()._config)  # type: ignore[arg-type]
    assert isinstance(deployment, RollboxDeployment)
    deployment.add_hook(SetStatusDeploymentHook("it", lambda *step: steps.append(step)))
    asyncio.run(deployment.start())
    try:
        runtime = deployment.runtime
        asyncio.run(runtime.create_session(CreateBashSessionRequest(startup_timeout=60)))
        asyncio.run(runtime.run_in_session(BashAction(command="A=kept", timeout=60)))
        asyncio.run(runtime.run_in_session(BashInterruptAction()))
        assert asyncio.run(runtime.run_in_session(BashAction(command="echo $A", timeout=60))).output == "kept\n"
    finally:
        asyncio.run(deployment.stop())
    assert steps == [("it", "Starting sandbox")]
    assert left() == []


def left() -> list[str]:
    async def found() -> list[str]:
        async with Client() as client:
            return [one.id for one in await client.list({"rollbox.host": "swe-rex"}) if one.state != "ending"]

    return asyncio.run(found())
