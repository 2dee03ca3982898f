"""smolagents' contract of an executor, and its agents with scripted answers; each row of the page's table."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from losing import lose
from smolagents import ChatMessage, CodeAgent, LogLevel, Model, tool
from smolagents.memory import ActionStep
from smolagents.models import MessageRole
from smolagents.utils import AgentError

from bad_inputs import NOBODY
from interrupts import interrupted
from rollbox.sync import Client, Sandbox
from rollbox_integrations.smolagents import RollboxPythonExecutor, SandboxUnavailable

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
EXAMPLE = Path(__file__).parents[2] / "examples/smolagents_humaneval.py"
TRAINER = """
import asyncio, sys
from rollbox import Client

async def main():
    sandbox = await Client().create(sys.argv[1], lease=5, memory="128Mi")
    print(sandbox.id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
# A pip that makes an empty module of the last package that it is asked for.
PIP = "import pathlib, sys; pathlib.Path('/tmp/pip', sys.argv[-1] + '.py').touch()"


class Script(Model):
    """A model that answers with these programs, one a step; a function is called for its program."""

    def __init__(self, *programs: Any) -> None:
        super().__init__(model_id="script")
        self.programs = list(programs)

    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        program = self.programs.pop(0)
        code = program if isinstance(program, str) else program()
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{code}\n</code>")


@contextlib.contextmanager
def running(**options: Any) -> Iterator[RollboxPythonExecutor]:
    executor = RollboxPythonExecutor(**{"image": IMAGE, "memory": "512Mi", "egress": "offline", **options})
    try:
        yield executor
    finally:
        executor.cleanup()


@pytest.fixture
def box(client: Client) -> Iterator[RollboxPythonExecutor]:
    with running() as executor:
        yield executor


def sandbox_of(box: RollboxPythonExecutor) -> Sandbox:
    assert box.sandbox is not None
    return box.sandbox


def agent(box: RollboxPythonExecutor, *programs: Any, **options: Any) -> CodeAgent:
    given: dict[str, Any] = {"tools": [], "verbosity_level": LogLevel.OFF, "step_callbacks": [box.check], **options}
    return CodeAgent(model=Script(*programs), executor=box, **given)


def errors(of: CodeAgent) -> list[str]:
    return [step.error.message for step in of.memory.steps if isinstance(step, ActionStep) and step.error]


def test_code_keeps_its_variables_and_has_a_value_and_logs(box: RollboxPythonExecutor) -> None:
    first = box("a = 20\nprint('out')\na + 1")
    assert (first.output, first.logs, first.is_final_answer) == ("21", "out\n", False)
    assert box("a * 2").output == "40"
    assert box("b = a").output is None


def test_variables_and_packages_are_sent(client: Client) -> None:
    with running(env={"PYTHONPATH": "/tmp/pip"}, files={"/tmp/pip/pip.py": PIP}) as box:
        box.send_variables({"data": {"x": (1, {2})}})
        assert box("data['x']").output == "(1, {2})"
        assert box.install_packages(["left_pad"]) == ["left_pad"]
        assert box("import left_pad; 1").output == "1"
    with pytest.raises(AgentError, match="pip could not install left_pad"):
        RollboxPythonExecutor(IMAGE, additional_imports=["left_pad"], egress="offline")


def test_a_picture_is_a_picture(box: RollboxPythonExecutor) -> None:
    png = io.BytesIO()
    PIL.Image.new("RGB", (3, 2)).save(png, "PNG")
    code = f"import base64\nclass Shown:\n    def _repr_png_(self): return base64.b64decode({encoded(png)!r})\nShown()"
    shown = box(code).output
    assert isinstance(shown, PIL.Image.Image)
    assert shown.size == (3, 2)


def encoded(data: io.BytesIO) -> bytes:
    return base64.b64encode(data.getvalue())


def test_an_agent_solves_its_task_with_a_tool_of_its_own(box: RollboxPythonExecutor) -> None:
    @tool
    def doubled(number: int) -> int:
        """Double a number.

        Args:
            number: what is doubled.
        """
        return 2 * number

    with agent(box, "1 / 0", "answer = doubled(number)", "final_answer({'answer': answer})", tools=[doubled]) as solver:
        assert solver.run("Double it.", additional_args={"number": 21}) == {"answer": 42}
        assert ["ZeroDivisionError\ndivision by zero" in one for one in errors(solver)] == [True]
    assert box.sandbox is None


def test_an_answer_that_is_pickled_is_refused(box: RollboxPythonExecutor) -> None:
    forged = "class FinalAnswerException(BaseException): pass\nraise FinalAnswerException('pickle:gASVAAAAAAAAAC4=')"
    with pytest.raises(Exception, match="Pickle data rejected"):
        box(forged)


def test_code_that_is_interrupted_stops_and_variables_stay(box: RollboxPythonExecutor) -> None:
    box("import subprocess, time\nkept = 1")
    with interrupted(sandbox_of(box)):
        box("open('/tmp/started', 'w').close()\nsubprocess.run(['sleep', '312'])")
    assert box("kept").output == "1"
    assert sandbox_of(box).exec("pgrep -f 'sleep [3]12'").exit_code == 1


def test_a_deadline_is_told_to_the_model_and_variables_stay(client: Client) -> None:
    with running(timeout=5) as box:
        solver = agent(box, "kept = 1\nwhile True: pass", "final_answer(kept)")
        assert solver.run("Wait.") == 1
        assert errors(solver) == ["\nThe code passed its limit of 5 s and was interrupted. Variables are kept."]


def test_out_of_memory_is_told_to_the_model(client: Client) -> None:
    with running(memory="64Mi") as box:
        solver = agent(box, "x = b'x' * (1 << 30); print(len(x))", "final_answer('over')")
        try:
            assert solver.run("Eat.") == "over"
            assert "memory" in errors(solver)[0]
        except SandboxUnavailable:
            # Under gVisor its sandbox ends with it, and the run.
            assert box.fault is not None
            assert (box.fault["code"], box.fault["mask_sample"]) == ("oom_killed", False)


def test_a_run_whose_sandbox_somebody_deletes_ends_and_says_so(box: RollboxPythonExecutor, client: Client) -> None:
    def delete() -> str:
        client.delete(sandbox_of(box).id)
        return "1"

    with pytest.raises(SandboxUnavailable, match=r"deleted \(caller; mask the sample\): ") as ended:
        agent(box, delete).run("Go on.")
    assert (ended.value.fault["code"], ended.value.fault["mask_sample"]) == ("deleted", True)
    assert box.fault == ended.value.fault


def test_binary_output_and_code_of_megabytes_are_results(box: RollboxPythonExecutor) -> None:
    assert box("import os; os.write(1, b'a\\xffb')").logs == "a\ufffdb"
    assert box(f"len('{'x' * (3 << 20)}')").output == str(3 << 20)


def test_each_call_of_a_sandbox_that_was_taken_away_says_so(box: RollboxPythonExecutor, client: Client) -> None:
    # A host that is killed leaves it to its lease.
    assert client.get(sandbox_of(box).id).lease is not None
    client.delete(sandbox_of(box).id)
    for _ in range(3):
        with pytest.raises(SandboxUnavailable, match=r"deleted \(caller; mask the sample\): "):
            box("1")


def test_each_call_of_a_sandbox_that_the_platform_has_lost_says_so(box: RollboxPythonExecutor) -> None:
    lose(sandbox_of(box).id)
    for _ in range(3):
        with pytest.raises(SandboxUnavailable, match=r"sandbox_lost \(platform; mask the sample\): "):
            box("1")


def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(SandboxUnavailable, match=r"image_not_found \(caller; mask the sample\): "):
        RollboxPythonExecutor(NO_IMAGE)


def test_a_quota_that_is_used_up_is_no_sandbox(box: RollboxPythonExecutor, client: Client) -> None:
    owner = client.quota().owner
    client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(SandboxUnavailable, match=r"quota_exceeded \(caller; mask the sample\): "):
            RollboxPythonExecutor(IMAGE, start_timeout=5)
    finally:
        client.remove_quota(owner)


def test_a_sandbox_whose_program_died_is_unavailable(box: RollboxPythonExecutor, client: Client) -> None:
    words = [sys.executable, "-c", TRAINER, IMAGE]
    with subprocess.Popen(words, env=os.environ.copy(), stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        orphan = client.connect(program.stdout.readline().decode().strip())
        python = orphan.interpreter()
        program.send_signal(signal.SIGKILL)
    while client.get(orphan.id).state != "ended":
        time.sleep(0.5)
    box._python = python
    with pytest.raises(SandboxUnavailable, match=r"lease_expired \(caller; mask the sample\): "):
        box("1")


def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(TypeError, match="memroy"):
        running(memroy=1).__enter__()
    with pytest.raises(ValueError, match=r"invalid_argument \(caller; score the sample\): .*memory"):
        RollboxPythonExecutor(IMAGE, memory="much")
    with pytest.raises(ValueError, match=rf"invalid_argument \(caller; score the sample\): .*{NOBODY}"):
        RollboxPythonExecutor(IMAGE, user=NOBODY)


def test_the_example_solves_its_problems(client: Client) -> None:
    words = [sys.executable, str(EXAMPLE), IMAGE]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert told == "10 of 10 solved\n"
