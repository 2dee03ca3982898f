"""HumanEval by an agent of smolagents, with the solutions of its authors as the answers of the model.

    pip install "rollbox-integrations[smolagents]"
    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    python integrations/examples/smolagents_humaneval.py localhost/rollbox/python:1

It prints how many of the first problems are solved, and whose fault it is where a sandbox was lost. With another model
in place of the script it asks that.
"""

import gzip
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from smolagents import ChatMessage, CodeAgent, LogLevel, Model
from smolagents.models import MessageRole

from rollbox_integrations.smolagents import RollboxPythonExecutor, SandboxUnavailable

PROBLEMS = Path(__file__).parents[2] / "sdk/examples/data/humaneval/HumanEval.jsonl.gz"
LIMIT = 10


class Script(Model):
    """A model that answers with these programs, one a step."""

    def __init__(self, *programs: str) -> None:
        super().__init__(model_id="script")
        self._programs = list(programs)

    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        """Give the next one."""
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self._programs.pop(0)}\n</code>")


def solved(image: str, problem: dict[str, str]) -> bool:
    """Whether an agent solves a problem, in a sandbox of its own: what it has defined is there for its next step."""
    program = problem["prompt"] + problem["canonical_solution"]
    test = f"{problem['test']}\ncheck({problem['entry_point']})\nfinal_answer('passed')"
    executor = RollboxPythonExecutor(image, memory="256Mi", egress="offline")
    with CodeAgent(
        tools=[],
        model=Script(program, test),
        executor=executor,
        step_callbacks=[executor.check],
        verbosity_level=LogLevel.OFF,
        max_steps=2,
    ) as agent:
        try:
            return bool(agent.run(problem["prompt"]) == "passed")
        except SandboxUnavailable as error:
            print(f"{error.fault['code']}: {'masked' if error.fault['mask_sample'] else 'scored'}")
            return False


def main(image: str) -> None:
    """Run them, four at a time."""
    with gzip.open(PROBLEMS, "rt") as lines:
        problems = [json.loads(line) for line in lines][:LIMIT]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(partial(solved, image), problems))
    print(f"{results.count(True)} of {len(results)} solved")


if __name__ == "__main__":
    main(sys.argv[1])
