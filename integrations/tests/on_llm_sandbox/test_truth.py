"""Each row of the page's table, and the example."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from llm_sandbox.exceptions import ContainerError, ValidationError

from on_llm_sandbox.conftest import IMAGE, made
from rollbox.sync import Client
from rollbox_integrations.llm_sandbox import RollboxSession, SandboxUnavailable

# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
EXAMPLE = Path(__file__).parents[2] / "examples/llm_sandbox_humaneval.py"
EATS = "x = b'x' * (1 << 30); print(len(x))"
TRAINER = """
import sys, time
import rollbox_integrations.llm_sandbox
from llm_sandbox import SandboxSession

with SandboxSession(backend="rollbox", image=sys.argv[1], lease=5, memory="128Mi") as session:
    print(session.container.id, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("backend", ["rollbox", "rollbox-interactive"])
def test_out_of_memory_is_a_result(client: Client, backend: str) -> None:
    with made(backend, memory="64Mi") as session:
        told = session.run(EATS)
        assert (told.exit_code, "memory" in told.stderr) == (137, True)


@pytest.mark.parametrize("backend", ["rollbox", "rollbox-interactive"])
def test_a_sandbox_that_somebody_deletes_is_no_result(client: Client, backend: str) -> None:
    with made(backend) as session:
        assert session.container is not None
        client.delete(session.container.id)
        with pytest.raises(SandboxUnavailable, match=r"deleted \(caller; mask the sample\): ") as gone:
            session.run("1")
        assert isinstance(gone.value, ContainerError)
        assert (gone.value.fault["code"], gone.value.fault["mask_sample"]) == ("deleted", True)
        assert session.fault == gone.value.fault


def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(SandboxUnavailable, match=r"image_not_found \(caller; mask the sample\): "):
        made(image=NO_IMAGE).open()


def test_a_quota_that_is_used_up_is_no_sandbox(session: RollboxSession, client: Client) -> None:
    owner = client.quota().owner
    client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(SandboxUnavailable, match=r"quota_exceeded \(caller; mask the sample\): "):
            made(start_timeout=5).open()
    finally:
        client.remove_quota(owner)


def test_a_sandbox_whose_program_died_is_no_result(client: Client) -> None:
    words = [sys.executable, "-c", TRAINER, IMAGE]
    with subprocess.Popen(words, env=os.environ.copy(), stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        session = made(container_id=program.stdout.readline().decode().strip())
        session.open()
        program.send_signal(signal.SIGKILL)
    assert session.container is not None
    while client.get(session.container.id).state != "ended":
        time.sleep(0.5)
    with pytest.raises(SandboxUnavailable, match=r"lease_expired \(caller; mask the sample\): "):
        session.run("1")
    session.close()


def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(ValidationError, match=r"invalid_argument \(caller; score the sample\): .*memory"):
        made(memory="much").open()


def test_the_example_solves_its_problems(client: Client) -> None:
    words = [sys.executable, str(EXAMPLE), IMAGE]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "10 of 10 solved\n"
