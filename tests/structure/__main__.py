"""Print how a checkout is built: python -m tests.structure [CHECKOUT]; this one when none is named.

It looks at the control plane's imports (packages, floors, circles, functions that are passed to constructors), at the
Rust crates' modules, and at three calls: a create and a readiness push as they run in a control plane with a fake
cluster, and an exec by the shortest chains of Rust modules that use one another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.structure.callbacks import callbacks
from tests.structure.imports import PACKAGE, Graph, beside, circles, floors, imports, modules
from tests.support import rust_modules

LIFECYCLE: Final = f"{PACKAGE}.lifecycle"
# Each program on the way of an exec, and the modules that it passes there.
EXEC: Final = (("gateway-rs/crates/gateway", "router", "exec", "upstream"), ("sidecar", "server", "process", "spawner"))


def main(arguments: list[str]) -> int:
    """Print everything; the exit status is that of the walks."""
    root = Path(arguments[0] if arguments else ".").resolve()
    found = modules(root)
    graph = imports(found)
    tied = circles(graph)
    print(f"control plane: {len(found)} modules, {sum(map(len, tied.values()))} circles")
    for package, knots in tied.items():
        print("".join(f"  {package}: {', '.join(sorted(knot))}\n" for knot in knots), end="")
    for package in (PACKAGE, LIFECYCLE):
        _print_floors(package, beside(graph, package))
    given = [one for one in callbacks(found) if one.module.startswith(LIFECYCLE)]
    print(f"\nfunctions given to constructors in {LIFECYCLE}: {len(given)}, {sum(one.upward for one in given)} upward")
    for one in given:
        print(f"  {'^' if one.upward else ' '} {one.module}:{one.line} {one.made}(... {one.given} ...)")
    print()
    _print_rust(root)
    environ = {**os.environ, "PYTHONPATH": f"{root}:{root / 'sdk/src'}"}
    print(flush=True)
    command = [sys.executable, str(Path(__file__).parent / "walks.py")]
    return subprocess.run(command, cwd=root, env=environ, check=False).returncode


def _print_floors(package: str, graph: Graph) -> None:
    rows = floors(graph)
    print(f"\n{package}: {len(graph)} neighbours, {sum(map(len, graph.values()))} imports, {len(rows)} floors")
    for number, row in enumerate(rows):
        print(f"  {len(rows) - number}. {', '.join(row)}")
    for name in sorted(graph):
        print(f"     {name} -> {' '.join(sorted(graph[name])) or '-'}")


def _print_rust(root: Path) -> None:
    for crate in sorted([*(root / "gateway-rs/crates").iterdir(), root / "sidecar"]):
        tied = sorted(rust_modules.cycles(crate))
        number = sum(one.count(",") + 1 for one in tied)
        print(f"{crate.name}: {len(rust_modules.modules(crate))} modules, {len(tied)} circles with {number} modules")
        print("".join(f"  {one}\n" for one in tied), end="")
    print("\nan exec, by what uses what")
    for program, *stops in EXEC:
        graph = dict(rust_modules.levels(rust_modules.uses(rust_modules.modules(root / program))))[()]
        ways = [" -> ".join(_chain(graph, *leg)) or f"({leg[0]} uses no {leg[1]})" for leg in pairwise(stops)]
        print(f"  {Path(program).name}: {', '.join(ways)}")


def _chain(graph: Graph, start: str, goal: str) -> list[str]:
    """The shortest chain of modules that use one another; empty when there is none."""
    chains, seen = [[start]], {start}
    while chains:
        chain = chains.pop(0)
        if chain[-1] == goal:
            return chain
        chains += [[*chain, one] for one in sorted(graph.get(chain[-1], set()) - seen)]
        seen |= graph.get(chain[-1], set())
    return []


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
