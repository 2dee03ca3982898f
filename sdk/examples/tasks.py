"""The tasks of rollouts.py: scripted policies in the place of a model, and the reward that each must get."""

import ast
import gzip
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mutants import DATA, ENDLESS, WRONG, WrongReturns
from packages import PACKAGES
from software import repairs

from rollbox import LazySandbox

Policy = Callable[[LazySandbox], Awaitable[float]]


@dataclass(frozen=True)
class Task:
    """One prompt: a policy for each sample of its group, and the reward that each must get."""

    name: str
    policies: tuple[tuple[Policy, float], ...]


async def talks(_: LazySandbox) -> float:
    """Answer without calling a tool: no sandbox is ever started."""
    return 0.0


def submits(*programs: str) -> Policy:
    """Make a policy that runs one program after another and stops at the first that passes."""

    async def play(sandbox: LazySandbox) -> float:
        for program in programs:
            if (await sandbox.exec(["python3", "-"], stdin=program, timeout=60)).ok:
                return 1.0
        return 0.0

    return play


def humaneval_tasks(limit: int) -> list[Task]:
    """Tasks whose policies solve it in the second try, never solve it, only talk, or hang."""
    with gzip.open(DATA, "rt") as lines:
        problems: list[dict[str, Any]] = [json.loads(line) for line in lines][:limit]
    tasks = []
    for problem in problems:
        entry = problem["entry_point"]
        right = problem["prompt"] + problem["canonical_solution"]
        changed = WrongReturns(entry).visit(ast.parse(right))
        wrong = WRONG + ast.unparse(ast.fix_missing_locations(changed))
        good, bad = (f"{program}\n{problem['test']}\ncheck({entry})\n" for program in (right, wrong))
        policies = ((submits(bad, good), 1.0), (submits(bad), 0.0), (talks, 0.0), (submits(ENDLESS), 0.0))
        tasks.append(Task(problem["task_id"].replace("/", "-"), policies))
    return tasks


def software_tasks(limit: int) -> list[Task]:
    """Tasks whose policies repair all bugs, leave the last one, or only talk."""
    tasks = []
    for package in PACKAGES[:limit]:
        most = len(package.bugs)
        policies = ((repairs(package, most), 1.0), (repairs(package, most - 1), 0.0), (talks, 0.0))
        tasks.append(Task(package.archive, policies))
    return tasks
