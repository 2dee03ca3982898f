"""The samples of humaneval.py: of each problem its solution and a mutant of it, and two programs that have no end."""

import ast
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "humaneval" / "HumanEval.jsonl.gz"
ENDLESS = "print('still here', flush=True)\nwhile True: pass"
HUNGRY = "eaten = []\nwhile True: eaten.append(b'x' * 2**24)"  # b'x' * n writes every page, bytearray(n) would not
WRONG = """
def _wrong(value):
    if isinstance(value, bool): return not value
    if isinstance(value, (int, float)): return value + 1
    if isinstance(value, str): return value + "?"
    if isinstance(value, (list, tuple)): return type(value)([*value, None])
    return None if value is not None else 0
"""


class WrongReturns(ast.NodeTransformer):
    """Make one function return wrong values: flipped, one too many, one too long. Functions inside stay as they are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self.generic_visit(node) if node.name == self.name else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        value = node.value or ast.Constant(None)
        return ast.Return(ast.Call(ast.Name("_wrong", ast.Load()), [value], []))


@dataclass(frozen=True)
class Sample:
    """One program to grade: of which problem, which kind of program, and the outcome that is right for it."""

    name: str
    kind: str
    program: str
    expected: str


def samples(limit: int) -> list[Sample]:
    """Two samples for each problem, and two that the platform must end."""
    with gzip.open(DATA, "rt") as lines:
        problems: list[dict[str, Any]] = [json.loads(line) for line in lines][:limit]
    found = []
    for problem in problems:
        name, entry = problem["task_id"], problem["entry_point"]
        tests = f"\n{problem['test']}\ncheck({entry})\n"
        solution = problem["prompt"] + problem["canonical_solution"]
        mutant = WRONG + ast.unparse(ast.fix_missing_locations(WrongReturns(entry).visit(ast.parse(solution))))
        found.append(Sample(name, "canonical", solution + tests, "passed"))
        found.append(Sample(name, "mutant", mutant + tests, "failed"))
    return [*found, Sample("endless", "endless", ENDLESS, "deadline"), Sample("hungry", "hungry", HUNGRY, "oom_killed")]
