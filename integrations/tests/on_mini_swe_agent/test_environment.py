"""mini-swe-agent's contract of an environment, and its agent with scripted answers; each row of the page's table."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output
from pydantic import ValidationError

from rollbox.sync import Client, Sandbox
from rollbox_integrations.mini_swe_agent import RollboxEnvironment, SandboxUnavailable

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
PATH = "rollbox_integrations.mini_swe_agent.RollboxEnvironment"
TRAINER = """
import asyncio, sys
from rollbox import Client

async def main():
    sandbox = await Client().create(sys.argv[1], lease=5, memory="128Mi")
    print(sandbox.id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
EATS = "python3 -c 'x = b\"x\" * (1 << 30); print(len(x))'"


def made(**options: Any) -> RollboxEnvironment:
    """What a configuration file says, read as mini-swe-agent reads it."""
    told = {"environment_class": PATH, "image": IMAGE, "memory": "512Mi", "egress": "offline", **options}
    environment = get_environment(told)
    assert isinstance(environment, RollboxEnvironment)
    return environment


@contextlib.contextmanager
def running(**options: Any) -> Iterator[RollboxEnvironment]:
    environment = made(**options)
    try:
        yield environment
    finally:
        environment.cleanup()


@pytest.fixture
def box(client: Client) -> Iterator[RollboxEnvironment]:
    with running() as environment:
        yield environment


def sandbox_of(box: RollboxEnvironment) -> Sandbox:
    assert box.sandbox is not None
    return box.sandbox


def agent(box: RollboxEnvironment, *commands: str, **options: Any) -> DefaultAgent:
    outputs = [make_output(command, [{"command": command}]) for command in commands]
    texts = {"system_template": "You are helpful.", "instance_template": "{{task}}"}
    return DefaultAgent(DeterministicModel(outputs=outputs), box, **texts, **options)


def test_a_command_ends_with_its_code_and_both_outputs_as_they_came(box: RollboxEnvironment) -> None:
    command = {"command": "echo out; echo err >&2; pwd; exit 3"}
    assert box.execute(command, "/tmp") == {"output": "out\nerr\n/tmp\n", "returncode": 3, "exception_info": ""}
    missing = box.execute({"command": "true"}, "/no/such")
    assert (missing["returncode"], "/no/such" in missing["output"]) == (126, True)


def test_variables_are_given_and_forwarded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_HERE", "here")
    monkeypatch.delenv("NOT_HERE", raising=False)
    with running(env={"A": "b"}, forward_env=["FROM_HERE", "NOT_HERE"]) as box:
        assert box.execute({"command": "echo $A $FROM_HERE ${NOT_HERE-unset}"})["output"] == "b here unset\n"


def test_an_agent_solves_its_task_and_submits(box: RollboxEnvironment, tmp_path: Path) -> None:
    submit = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat /tmp/answer"
    told = agent(box, "echo 42 > /tmp/answer", submit, output_path=tmp_path / "t.json").run("answer")
    assert (told["exit_status"], told["submission"]) == ("Submitted", "42\n")
    info = json.loads((tmp_path / "t.json").read_text())["info"]
    assert (info["exit_status"], info["sandbox_fault"]) == ("Submitted", None)
    assert info["config"]["environment_type"] == PATH


def test_a_deadline_is_as_with_docker(box: RollboxEnvironment) -> None:
    late = box.execute({"command": "echo so far; sleep 304"}, timeout=5)
    assert (late["output"], late["returncode"], late["extra"]["exception_type"]) == ("so far\n", -1, "TimeoutExpired")
    assert late["exception_info"].endswith("timed out after 5 seconds")
    assert box.execute({"command": "pgrep -f 'sleep [3]04'"})["returncode"] == 1


def test_out_of_memory_is_a_result(client: Client) -> None:
    with running(memory="64Mi") as box:
        result = box.execute({"command": EATS})
        assert (result["returncode"], "memory limit" in result["output"]) == (137, True)


def test_a_sandbox_that_somebody_deletes_ends_the_run_and_is_in_the_trajectory(
    box: RollboxEnvironment, client: Client, tmp_path: Path
) -> None:
    client.delete(sandbox_of(box).id)
    with pytest.raises(SandboxUnavailable, match=r"deleted \(caller; mask the sample\): "):
        agent(box, "true", output_path=tmp_path / "t.json").run("answer")
    info = json.loads((tmp_path / "t.json").read_text())["info"]
    assert (info["exit_status"], info["submission"]) == ("SandboxUnavailable", "")
    assert (info["sandbox_fault"]["code"], info["sandbox_fault"]["mask_sample"]) == ("deleted", True)


def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(SandboxUnavailable, match=r"image_not_found \(caller; mask the sample\): "):
        made(image=NO_IMAGE)


def test_a_quota_that_is_used_up_is_no_sandbox(box: RollboxEnvironment, client: Client) -> None:
    owner = client.quota().owner
    client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(SandboxUnavailable, match=r"quota_exceeded \(caller; mask the sample\): "):
            made(start_timeout=5)
    finally:
        client.remove_quota(owner)


def test_a_sandbox_whose_program_died_is_unavailable(box: RollboxEnvironment, client: Client) -> None:
    words = [sys.executable, "-c", TRAINER, IMAGE]
    with subprocess.Popen(words, env=os.environ.copy(), stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        orphan = client.connect(program.stdout.readline().decode().strip())
        program.send_signal(signal.SIGKILL)
    while client.get(orphan.id).state != "ended":
        time.sleep(0.5)
    own, box.sandbox = box.sandbox, orphan
    try:
        with pytest.raises(SandboxUnavailable, match=r"lease_expired \(caller; mask the sample\): "):
            box.execute({"command": "true"})
    finally:
        box.sandbox = own


def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(ValidationError, match="memroy"):
        made(memroy=1)
    with pytest.raises(ValueError, match=r"invalid_argument \(caller; score the sample\): .*memory"):
        made(memory="much")
