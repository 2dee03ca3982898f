"""HumanEval as a taskset of verifiers, whose checks need no model: each solution passes, and no solution does not.

pip install "rollbox-integrations[verifiers]"
rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
export PYTHONPATH=integrations/examples
vf-validate verifiers_humaneval --runtime.type custom --runtime.egress offline \
      --runtime.import-path rollbox_integrations.verifiers.RollboxBackend --runtime.image localhost/rollbox/python:1
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf

PROBLEMS = Path(__file__).parents[2] / "sdk/examples/data/humaneval/HumanEval.jsonl.gz"
ANSWER = "answer.py"


class HumanEvalData(vf.TaskData):
    """A problem."""

    solution: str
    tests: str


class HumanEvalTask(vf.Task[HumanEvalData, vf.State, vf.TaskConfig]):
    """A problem, whose answer is a file of the sandbox."""

    NEEDS_CONTAINER = True

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Whether the author's solution passes."""
        await runtime.write(ANSWER, f"{self.data.prompt_text}{self.data.solution}".encode())
        return await self._passes(runtime)

    @vf.reward
    async def passed(self, runtime: vf.Runtime) -> float:
        """1 where the tests pass over the answer."""
        return float(await self._passes(runtime))

    async def _passes(self, runtime: vf.Runtime) -> bool:
        await runtime.write("tests.py", self.data.tests.encode())
        return (await runtime.run(["python3", "tests.py"], {})).exit_code == 0


class HumanEvalConfig(vf.TasksetConfig):
    """How many problems there are."""

    problems: int = 20


class HumanEval(vf.Taskset[HumanEvalTask, HumanEvalConfig]):
    """The first problems."""

    def load(self) -> Iterator[HumanEvalTask]:
        """Read them."""
        with gzip.open(PROBLEMS, "rt") as lines:
            for _, line in zip(range(self.config.problems), lines, strict=False):
                one = json.loads(line)
                tests = f"from answer import *\n{one['test']}\ncheck({one['entry_point']})\n"
                data = HumanEvalData(
                    id=one["task_id"], prompt=one["prompt"], solution=one["canonical_solution"], tests=tests
                )
                yield HumanEvalTask(data, self.config.task)


__all__ = ["HumanEval"]
