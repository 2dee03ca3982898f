"""Whole evaluations: the example with its oracle, and a sample whose sandbox is taken away."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from on_inspect.samples import IMAGE
from rollbox import Client
from rollbox_integrations.inspect import RollboxConfig, RollboxSandboxEnvironment, fault_of

EXAMPLE = Path(__file__).parents[2] / "examples/inspect_humaneval.py"
INSPECT = Path(sys.executable).with_name("inspect")


async def test_the_example_solves_all_its_problems(client: Client, tmp_path: Path) -> None:
    words = ("eval", EXAMPLE.name, "--model", "mockllm/model", "-T", f"image={IMAGE}", "--log-dir", str(tmp_path))
    program = await asyncio.create_subprocess_exec(INSPECT, *words, "--display", "none", cwd=EXAMPLE.parent)
    assert await program.wait() == 0
    (info,) = list_eval_logs(str(tmp_path))
    log = read_eval_log(info)
    assert log.results is not None
    assert (log.status, len(log.samples or [])) == ("success", 20)
    assert log.results.scores[0].metrics["accuracy"].value == 1


@solver
def _taken_away(client: Client) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await client.delete(sandbox().as_type(RollboxSandboxEnvironment).sandbox.id)
        return state

    return solve


@scorer(metrics=[accuracy()])
def _asks_the_sandbox() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=(await sandbox().exec(["true"])).success)

    return score


async def test_a_sample_without_its_sandbox_has_no_score_but_a_fault(client: Client, tmp_path: Path) -> None:
    where = SandboxEnvironmentSpec("rollbox", RollboxConfig(image=IMAGE, memory="256Mi"))
    task = Task([Sample(input="x")], solver=_taken_away(client), scorer=_asks_the_sandbox(), sandbox=where)
    (log,) = await eval_async(task, model="mockllm/model", log_dir=str(tmp_path), fail_on_error=False)
    (sample,) = log.samples or []
    assert sample.error is not None
    assert "deleted (caller; mask the sample)" in sample.error.message
    assert not sample.scores
    fault = fault_of(sample)
    assert fault is not None
    assert (fault["code"], fault["fault"], fault["mask_sample"]) == ("deleted", "caller", True)
    assert fault["why"].startswith("sandbox ")
