"""What `make structure` finds in a checkout."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.structure import __main__ as command
from tests.structure.callbacks import callbacks
from tests.structure.imports import beside, circles, floors, imports, modules

ROOT = Path(__file__).parent.parent.parent.parent
FILES = {
    "__init__.py": "",
    "top.py": "from controlplane.middle import part",
    "middle/__init__.py": "",
    "middle/part.py": "from controlplane.low import X\nimport controlplane.low",
    "low.py": "import os",
    "one.py": "from controlplane import two",
    "two.py": "from controlplane.one import y",
}
MAKER = """
class Part:
    def method(self): ...

class Maker:
    value: int

    def __init__(self, part, options):
        Part(self.own, lambda: self.value, self)
        Part(part.method, options.value, part.other, len)

    def own(self): ...
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "controlplane" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_packages_stand_on_floors_and_circles_are_told_apart(checkout: Path) -> None:
    graph = imports(modules(checkout))
    neighbours = beside(graph, "controlplane")
    assert neighbours == {"top": {"middle"}, "middle": {"low"}, "low": set(), "one": {"two"}, "two": {"one"}}
    assert floors(neighbours) == [["top"], ["middle"], ["low"]]
    assert circles(graph) == {"controlplane": [{"one", "two"}]}


def test_a_function_of_the_maker_is_a_callback_upward() -> None:
    given = [(one.given, one.upward) for one in callbacks({"m": ast.parse(MAKER)})]
    assert given == [("self.own", True), ("lambda: self.value", True), ("self", True), ("part.method", False)]


def test_nothing_in_the_lifecycle_calls_back_into_what_it_is_a_part_of() -> None:
    found = {name: tree for name, tree in modules(ROOT).items() if name.startswith(command.LIFECYCLE)}
    assert [one for one in callbacks(found) if one.upward] == []


def test_the_lifecycle_has_six_floors_at_most() -> None:
    assert len(floors(beside(imports(modules(ROOT)), command.LIFECYCLE))) <= 6


def test_the_ways_of_a_create_and_a_push_are_printed() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tests.structure"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'sdk/src'}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    create, push = shown.index("a create, until"), shown.index("a readiness push")
    assert "CreateQueue.enter" in shown[create:push]
    assert "store/memory: MemoryStore.admit" in shown[create:push]
    assert "Completion.run" in shown[push:]
