"""A recursive language model: its cells ask the model about parts of a text that is too long for any prompt.

The text is a variable of the interpreter. A cell asks by a result; the answers come back as a variable, and the next
cell goes on. The model here is a stub; put yours in its place.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable

from rollbox import Cell, Interpreter, Sandbox

# Any image with Python; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"
Model = Callable[[str], Awaitable[str]]
MOST_TURNS, MOST_CALLS = 8, 16
PRELUDE = """
answers, final = [], None
def ask(prompts):
    display({"application/json": {"asked": prompts}}, raw=True)
"""
SPLIT = """
parts = [text[at:at + 5400] for at in range(0, len(text), 5400)]
ask(["How many apples: " + part for part in parts])
"""


async def stub(prompt: str) -> str:
    """Play a model: count a word in a part; write code for the root."""
    if prompt.startswith("How many apples: "):
        return str(prompt.split(": ", 1)[1].count("apple"))
    if "answers: 0" in prompt:
        return SPLIT
    return "final = sum(map(int, answers))"


async def loop(python: Interpreter, model: Model) -> str | None:
    """Let the model write cells until one of them has set `final`."""
    answers: list[str] = []
    for turn in range(MOST_TURNS):
        code = await model(f"Write a cell that uses text, ask and answers. answers: {len(answers)}")
        cell = await python.run(code, timeout=30)
        prompts = asked(cell)
        print(f"turn {turn}: {cell.end}, {len(prompts)} sub-calls")
        # Data of code that nobody trusts: bounded, and given back as data.
        answers = list(await asyncio.gather(*(model(prompt) for prompt in prompts[:MOST_CALLS])))
        done = await python.run(f"answers = {answers!r}\nfinal")
        if done.text is not None:
            return done.text
    return None


def asked(cell: Cell) -> list[str]:
    """Return the prompts of a cell."""
    found = []
    for result in cell.results:
        match result.json:
            case {"asked": list(prompts)}:
                found += [str(prompt) for prompt in prompts]
    return found


async def main() -> None:
    """Count a word in a text that is longer than any prompt."""
    async with (
        await Sandbox.create(IMAGE, memory="256Mi", ttl=600) as sandbox,
        await sandbox.interpreter() as python,
    ):
        await python.run(PRELUDE)
        await python.run(f"text = {'a pear, an apple; ' * 2000!r}")
        print("answer:", await loop(python, stub))


asyncio.run(main())
