"""deepagents' agents with scripted answers, and each row of the page's table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents_humaneval import Script
from langchain_core.messages import AIMessage, ToolMessage

from on_deepagents.conftest import IMAGE
from rollbox.sync import Client
from rollbox_integrations.deepagents import RollboxSandbox, SandboxUnavailable

# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
EXAMPLE = Path(__file__).parents[2] / "examples/deepagents_humaneval.py"
EATS = "python3 -c \"x = b'x' * (1 << 30); print(len(x))\""
TRAINER = """
import sys, time
from rollbox_integrations.deepagents import RollboxSandbox

box = RollboxSandbox(sys.argv[1], lease=5, memory="128Mi")
print(box.id, flush=True)
time.sleep(600)
"""
GIVES_UP = """
import asyncio, sys
from rollbox_integrations.deepagents import RollboxSandbox

async def main():
    creating = [asyncio.create_task(RollboxSandbox.acreate(sys.argv[1], memory="128Mi")) for _ in range(4)]
    await asyncio.sleep(0.3)
    for one in creating:
        one.cancel()

asyncio.run(main())
"""
Call = tuple[str, dict[str, Any]]


def agent(box: RollboxSandbox, *turns: Sequence[Call]) -> Any:
    return create_deep_agent(Script(*turns), backend=box)


def told(state: dict[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


ASK = {"messages": [("user", "Do it.")]}
TURNS: tuple[Sequence[Call], ...] = (
    [("write_file", {"file_path": "/made/a.py", "content": "print(6 * 7)\nprint('no')\n"})],
    [
        ("edit_file", {"file_path": "/made/a.py", "old_string": "'no'", "new_string": "'yes'"}),
        ("ls", {"path": "/made"}),
    ],
    [
        ("execute", {"command": "python3 /made/a.py; exit 3"}),
        ("grep", {"pattern": "yes", "path": "/made"}),
        ("glob", {"pattern": "*.py", "path": "/made"}),
        ("read_file", {"file_path": "/made/a.py"}),
    ],
)


def check(state: dict[str, Any]) -> None:
    answers = told(state)
    assert [answer.status for answer in answers] == ["success"] * 7
    assert "/made/a.py" in answers[2].text
    assert ("42\nyes\n" in answers[3].text, answers[3].artifact["exit_code"]) == (True, 3)
    assert ["/made/a.py" in answer.text for answer in answers[4:6]] == [True, True]
    assert "print('yes')" in answers[6].text
    assert isinstance(state["messages"][-1], AIMessage)


def test_an_agent_works_in_its_sandbox(box: RollboxSandbox) -> None:
    check(agent(box, *TURNS).invoke(ASK))


async def test_an_agent_works_in_its_sandbox_with_await(client: Client) -> None:
    async with await RollboxSandbox.acreate(IMAGE, memory="256Mi", egress="offline") as box:
        check(await agent(box, *TURNS).ainvoke(ASK))


def test_what_a_model_asks_wrong_it_is_told(box: RollboxSandbox) -> None:
    state = agent(box, [("read_file", {"file_path": "/no/such"}), ("execute", {"command": ""})]).invoke(ASK)
    assert "file_not_found" in told(state)[0].text
    assert "invalid_argument" in told(state)[1].text


def test_out_of_memory_is_a_result(client: Client) -> None:
    with RollboxSandbox(IMAGE, memory="64Mi", egress="offline") as box:
        answer = told(agent(box, [("execute", {"command": EATS})]).invoke(ASK))[0]
        assert (answer.artifact["exit_code"], "memory limit" in answer.text) == (137, True)


@pytest.mark.parametrize(
    "call",
    [
        ("execute", {"command": "true"}),
        ("write_file", {"file_path": "/made/a", "content": ""}),
        ("ls", {"path": "/"}),
        ("read_file", {"file_path": "/etc/hostname"}),
        ("grep", {"pattern": "a", "path": "/etc"}),
    ],
)
def test_a_run_whose_sandbox_somebody_deletes_ends_and_says_so(box: RollboxSandbox, client: Client, call: Call) -> None:
    client.delete(box.id)
    with pytest.raises(SandboxUnavailable, match=r"deleted \(caller; mask the sample\): ") as ended:
        agent(box, [call]).invoke(ASK)
    assert (ended.value.fault["code"], ended.value.fault["mask_sample"]) == ("deleted", True)
    assert box.fault == ended.value.fault


def test_deepagents_tells_a_model_what_a_glob_has_lost_and_the_backend_has_it_too(
    box: RollboxSandbox, client: Client
) -> None:
    client.delete(box.id)
    state = agent(box, [("glob", {"pattern": "*", "path": "/etc"})]).invoke(ASK)
    assert "mask the sample" in told(state)[0].text
    assert box.fault is not None
    assert box.fault["mask_sample"]


async def test_every_call_says_that_the_sandbox_is_gone(box: RollboxSandbox, client: Client) -> None:
    client.delete(box.id)
    calls: list[Callable[[], Any]] = [
        lambda: box.aexecute("true"),
        lambda: box.aupload_files([("/a", b""), ("/b", b"")]),
        lambda: box.adownload_files(["/a", "/b"]),
        lambda: box.aedit("/a", "a", "b"),
        lambda: box.adelete("/a"),
    ]
    for call in calls:
        with pytest.raises(SandboxUnavailable, match="mask the sample"):
            await call()


def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(SandboxUnavailable, match=r"image_not_found \(caller; mask the sample\): "):
        RollboxSandbox(NO_IMAGE)


def test_a_quota_that_is_used_up_is_no_sandbox(box: RollboxSandbox, client: Client) -> None:
    owner = client.quota().owner
    client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(SandboxUnavailable, match=r"quota_exceeded \(caller; mask the sample\): "):
            RollboxSandbox(IMAGE, start_timeout=5)
    finally:
        client.remove_quota(owner)


def test_a_sandbox_whose_program_died_is_unavailable(client: Client) -> None:
    words = [sys.executable, "-c", TRAINER, IMAGE]
    with subprocess.Popen(words, env=os.environ.copy(), stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        box = RollboxSandbox(sandbox=client.connect(program.stdout.readline().decode().strip()))
        program.send_signal(signal.SIGKILL)
    while client.get(box.id).state != "ended":
        time.sleep(0.5)
    with pytest.raises(SandboxUnavailable, match=r"lease_expired \(caller; mask the sample\): "):
        box.execute("true")


def test_a_program_that_gives_up_its_creates_leaves_no_sandbox(client: Client) -> None:
    subprocess.run([sys.executable, "-c", GIVES_UP, IMAGE], check=True)


def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(TypeError, match="memroy"):
        RollboxSandbox(IMAGE, memroy=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"invalid_argument \(caller; score the sample\): .*memory"):
        RollboxSandbox(IMAGE, memory="much")


def test_the_example_solves_its_problems(client: Client) -> None:
    words = [sys.executable, str(EXAMPLE), IMAGE]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "10 of 10 solved\n"
