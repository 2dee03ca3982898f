"""HumanEval by a deep agent, with the solutions of its authors as the answers of the model.

    pip install "rollbox-integrations[deepagents]"
    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    python integrations/examples/deepagents_humaneval.py localhost/rollbox/python:1

It prints how many of the first problems are solved, and whose fault it is where a sandbox was lost. With another model
in place of the script it asks that.
"""

import asyncio
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult

from rollbox_integrations.deepagents import RollboxSandbox, SandboxUnavailable

PROBLEMS = Path(__file__).parents[2] / "sdk/examples/data/humaneval/HumanEval.jsonl.gz"
LIMIT = 10
Call = tuple[str, dict[str, Any]]


class Script(BaseChatModel):
    """A model that calls these tools, some in each turn, and then says that it is done."""

    turns: list[Sequence[Call]]

    def __init__(self, *turns: Sequence[Call]) -> None:
        super().__init__(turns=list(turns))  # type: ignore[call-arg]  # a field of a model

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """Take the tools for granted."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        calls = self.turns.pop(0) if self.turns else []
        wanted = [ToolCall(name=name, args=args, id=f"{len(messages)}-{n}") for n, (name, args) in enumerate(calls)]
        message = AIMessage(content="" if wanted else "Done.", tool_calls=wanted)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def solved(image: str, problem: dict[str, str]) -> bool:
    """Whether an agent solves a problem, in a sandbox of its own, which the test then looks at."""
    program = problem["prompt"] + problem["canonical_solution"]
    test = f"from solution import *\n{problem['test']}\ncheck({problem['entry_point']})\n"
    model = Script([("write_file", {"file_path": "/made/solution.py", "content": program})])
    try:
        async with await RollboxSandbox.acreate(image, memory="256Mi", egress="offline") as backend:
            agent = create_deep_agent(model, backend=backend)
            await agent.ainvoke({"messages": [("user", f"Write /made/solution.py:\n{problem['prompt']}")]})
            await backend.awrite("/made/test.py", test)
            return (await backend.aexecute("python3 /made/test.py", timeout=30)).exit_code == 0
    except SandboxUnavailable as error:
        print(f"{error.fault['code']}: {'masked' if error.fault['mask_sample'] else 'scored'}")
        return False


async def main(image: str) -> None:
    """Run them, all at once."""
    with gzip.open(PROBLEMS, "rt") as lines:
        problems = [json.loads(line) for line in lines][:LIMIT]
    results = await asyncio.gather(*(solved(image, problem) for problem in problems))
    print(f"{results.count(True)} of {len(results)} solved")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
