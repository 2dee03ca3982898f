"""Which module of the control plane imports which, and what that makes of its packages. Pure but for reading files."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.rust_modules import knots

PACKAGE: Final = "controlplane"
GENERATED: Final = "controlplane.wire"

Graph = Mapping[str, set[str]]


def modules(root: Path) -> dict[str, ast.Module]:
    """The modules of the control plane in a checkout by their names, parsed; generated ones are left out."""
    found = {}
    for file in sorted((root / PACKAGE).rglob("*.py")):
        name = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith(GENERATED):
            found[name] = ast.parse(file.read_text())
    return found


def imports(found: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Which modules each one imports; a name from a package counts as the package where it is no module."""
    graph: dict[str, set[str]] = {}
    for name, tree in found.items():
        used = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                used |= {
                    one if (one := f"{node.module}.{alias.name}") in found else node.module for alias in node.names
                }
            elif isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
        graph[name] = {one for one in used if one in found and one != name}
    return graph


def beside(graph: Graph, package: str) -> dict[str, set[str]]:
    """What the modules and packages directly in ``package`` import of one another; each stands for all below it."""
    inside: dict[str, set[str]] = {}
    for name, used in graph.items():
        if (here := _child(name, package)) is not None:
            others = {other for one in used if (other := _child(one, package)) not in (None, here)}
            inside.setdefault(here, set()).update(one for one in others if one)
    return inside


def circles(graph: Graph) -> dict[str, list[set[str]]]:
    """The sets of neighbours that import one another in a circle, by the package that they are in."""
    packages = {PACKAGE} | {name.rpartition(".")[0] for name in graph if "." in name}
    found = {package: knots(beside(graph, package)) for package in sorted(packages)}
    return {package: some for package, some in found.items() if some}


def floors(graph: Graph) -> list[list[str]]:
    """The neighbours of a graph from the top: each imports only from floors below. What is in a circle has none."""
    tied = {name for knot in knots(graph) for name in knot}

    @cache
    def height(name: str) -> int:
        return max((height(other) + 1 for other in graph.get(name, ()) if other not in tied), default=0)

    heights = {name: height(name) for name in graph if name not in tied}
    return [
        sorted(name for name in heights if heights[name] == at) for at in sorted(set(heights.values()), reverse=True)
    ]


def _child(name: str, package: str) -> str | None:
    """The part of ``name`` directly below ``package``; None when it is not in there."""
    return name.removeprefix(f"{package}.").partition(".")[0] if name.startswith(f"{package}.") else None
