"""No module imports itself by way of others, imports for type checkers included; and who imports benchmarks."""

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest


def test_imports_have_no_circle() -> None:
    graph = grimp.build_graph("controlplane", "rollbox", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as circle:
        pytest.fail(" imports ".join(reversed(circle.args[1])))


def test_other_tests_use_nothing_of_the_tools_that_measure_but_their_simulated_platform() -> None:
    tests = Path(__file__).parent.parent
    measuring = ("bench", "scale")
    files = [file for file in tests.rglob("*.py") if file.relative_to(tests).parts[0] not in measuring]
    assert len(files) > 500
    used = re.compile(r"^\s*(?:from|import) tests\.(?:scale|bench(?!\.lifecycle\b))\b", re.MULTILINE)
    assert [str(file) for file in files if used.search(file.read_text())] == []
