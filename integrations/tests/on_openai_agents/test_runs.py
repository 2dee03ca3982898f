"""openai-agents' runner with scripted answers: tools of the model, on a sandbox of the run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from on_openai_agents.sessions import IMAGE, LABELS, outputs, run
from rollbox import Client

EXAMPLE = Path(__file__).parents[2] / "examples/openai_agents_humaneval.py"
SOLVE = "printf 'def add(a, b):\\n    return a %s b\\n' > add.py"
CHECK = "python3 -B -c 'import add; assert add.add(1, 2) == 3' && echo solved"


async def test_an_agent_solves_its_task_with_its_tools(client: Client) -> None:
    commands = [SOLVE % "-", CHECK, SOLVE % "+", CHECK]
    calls = [[function_call("exec_command", {"cmd": cmd}, call_id=cmd + str(at))] for at, cmd in enumerate(commands)]
    model = ScriptedModel([*calls, [assistant_message("done")]])
    result = await run(model)
    model.assert_complete()
    told = outputs(result)
    assert "AssertionError" in told[1]
    assert told[3].rstrip().endswith("Process exited with code 0\nOutput:\nsolved")
    assert result.final_output == "done"


async def test_an_agent_goes_on_with_a_program_on_a_terminal(client: Client) -> None:
    async def typed(call: ModelCall) -> Any:
        number = int(str(call).partition("running with session ID ")[2].split("\\n")[0])
        return [function_call("write_stdin", {"session_id": number, "chars": "print(6 * 7)\n"}, call_id="2")]

    begin = function_call("exec_command", {"cmd": "python3 -q", "tty": True, "yield_time_ms": 1000}, call_id="1")
    result = await run(ScriptedModel([[begin], ModelStep.respond(typed), [assistant_message("done")]]))
    assert "42" in outputs(result)[1]


async def test_a_run_that_is_cancelled_leaves_nothing(client: Client) -> None:
    call = function_call("exec_command", {"cmd": "sleep 311", "yield_time_ms": 30_000}, call_id="1")
    running = asyncio.create_task(run(ScriptedModel([[call]])))
    while not (found := [one.id for one in await client.list(LABELS) if one.state == "running"]):  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    sandbox = await client.connect(found[0])
    while (await sandbox.exec("pgrep -f 'sleep [3]11'")).exit_code:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_the_example_solves_its_problems(client: Client, record_property: Callable[[str, object], None]) -> None:
    program = await asyncio.create_subprocess_exec(sys.executable, EXAMPLE, IMAGE, stdout=asyncio.subprocess.PIPE)
    told, _ = await program.communicate()
    assert (told.decode(), program.returncode) == ("10 of 10 solved\n", 0)
    record_property("cases", 10)
