"""HumanEval in inspect, solved by its own solutions: no model is asked.

    pip install "rollbox-integrations[inspect]"
    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    inspect eval integrations/examples/inspect_humaneval.py --model mockllm/model -T image=localhost/rollbox/python:1

The accuracy is 1. With a solver that asks a model it is that model's.
"""

import gzip
import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from rollbox_integrations.inspect import RollboxConfig

PROBLEMS = Path(__file__).parents[2] / "sdk/examples/data/humaneval/HumanEval.jsonl.gz"


@task
def humaneval(image: str = "python:3.12-slim", limit: int = 20) -> Task:
    """The first problems, each in a sandbox of its own."""
    with gzip.open(PROBLEMS, "rt") as lines:
        problems = [json.loads(line) for line in lines][:limit]
    samples = [Sample(id=one["task_id"], input=one["prompt"], metadata=one) for one in problems]
    where = SandboxEnvironmentSpec("rollbox", RollboxConfig(image=image, memory="256Mi", egress="offline"))
    return Task(samples, solver=oracle(), scorer=passes(), sandbox=where)


@solver
def oracle() -> Solver:
    """Answer what the problem's author does."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.output.completion = state.metadata["canonical_solution"]
        return state

    return solve


@scorer(metrics=[accuracy()])
def passes() -> Scorer:
    """Run the problem's tests over the answer."""

    async def score(state: TaskState, target: Target) -> Score:
        one = state.metadata
        program = f"{one['prompt']}{state.output.completion}\n{one['test']}\ncheck({one['entry_point']})\n"
        await sandbox().write_file("/tmp/program.py", program)
        result = await sandbox().exec(["python3", "/tmp/program.py"], timeout=30)
        return Score(value=CORRECT if result.success else INCORRECT, explanation=result.stderr)

    return score
