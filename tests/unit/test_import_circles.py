"""No module imports itself by way of others, imports for type checkers included."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_imports_have_no_circle() -> None:
    graph = grimp.build_graph("controlplane", "rollbox", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as circle:
        pytest.fail(" imports ".join(reversed(circle.args[1])))
