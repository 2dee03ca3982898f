"""HumanEval by an agent of openai-agents, with the solutions of its authors as the answers of the model.

    pip install "rollbox-integrations[openai-agents]"
    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    python integrations/examples/openai_agents_humaneval.py localhost/rollbox/python:1

It prints how many of the first problems are solved, and whose fault it is where a sandbox was lost. With the name of a
model in place of the script it asks that.
"""

import asyncio
import gzip
import json
import shlex
import sys
from pathlib import Path

from agents import RunConfig, Runner
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.sandbox.snapshot import NoopSnapshotSpec
from agents.testing import ScriptedModel, assistant_message, function_call

from rollbox_integrations.openai_agents import RollboxSandboxClient, RollboxSandboxClientOptions, fault_of

PROBLEMS = Path(__file__).parents[2] / "sdk/examples/data/humaneval/HumanEval.jsonl.gz"
LIMIT = 10


def script(problem: dict[str, str]) -> ScriptedModel:
    """Answers that write the program, and run its tests."""
    program = (
        f"{problem['prompt']}{problem['canonical_solution']}\n{problem['test']}\ncheck({problem['entry_point']})\n"
    )
    write = {"cmd": f"printf %s {shlex.quote(program)} > program.py"}
    test = {"cmd": "python3 program.py && echo passed"}
    calls = [function_call("exec_command", args, call_id=str(at)) for at, args in enumerate((write, test))]
    return ScriptedModel([*([call] for call in calls), [assistant_message("Solved.")]])


async def solved(problem: dict[str, str], image: str) -> bool:
    """Whether an agent solves a problem, in a sandbox of its own."""
    agent: SandboxAgent[None] = SandboxAgent(name="coder", model=script(problem), capabilities=[Shell()])
    options = RollboxSandboxClientOptions(image=image, memory="256Mi", egress="offline")
    where = SandboxRunConfig(client=RollboxSandboxClient(), options=options, snapshot=NoopSnapshotSpec())
    result = await Runner.run(agent, problem["prompt"], run_config=RunConfig(tracing_disabled=True, sandbox=where))
    return any("passed" in item.output for item in result.new_items if item.type == "tool_call_output_item")


async def main(image: str) -> None:
    """Run all of them at once."""
    with gzip.open(PROBLEMS, "rt") as lines:
        problems = [json.loads(line) for line in lines][:LIMIT]
    results = await asyncio.gather(*(solved(one, image) for one in problems), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and (fault := fault_of(result)) is not None:
            print(f"{fault['code']}: {'masked' if fault['mask_sample'] else 'scored'}")
    print(f"{results.count(True)} of {len(results)} solved")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
