"""The modules of the Rust crates, which module uses which, and the cycles among them.

    python -m tests.support.rust_modules           the cycles of every crate, and how many modules are in them
    python -m tests.support.rust_modules --graph   what each module at the top of a crate uses

A module uses another one when a path in its code leads there (`use`, or in place), tests aside. `cycles` looks at every
folder: there a module stands for all modules below it, and the folder's own file is a module beside them. So neither
two files nor two folders may use one another, and a file of a folder may not use what the folder's own file has when
that file uses it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
CRATES: Final = (*sorted(f"gateway-rs/crates/{one.name}" for one in (ROOT / "gateway-rs/crates").iterdir()), "sidecar")

Module = tuple[str, ...]
Graph = Mapping[str, set[str]]

# Comments, strings (raw ones too), characters and visibilities: nothing in them is used.
_NO_CODE: Final = re.compile(
    r"""\(in [\w:]+\)|//[^\n]*|/\*.*?\*/|b?r(?P<fence>\#*)".*?"(?P=fence)|"(?:\\.|[^"\\])*"|'(?:\\[^\n]+?|[^\\'\n])'""",
    re.DOTALL,
)
_TESTS: Final = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([a-z]+\))? )?(?:mod \w+;|(?:mod|fn|impl|use)\b)")
_USE: Final = re.compile(r"\buse\s+([^;]+);")
_PATH: Final = re.compile(r"(?<![\w:])(?:crate|self|super)(?:::\w+)+|(?<![\w:.])[a-z_]\w*(?=::)")
# A branch of a `use` tree, to the next comma outside of braces (rustfmt nests three deep at most here).
_BRANCH: Final = re.compile(r"(?:[^,{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})+")


def modules(crate: Path) -> dict[Module, str]:
    """The library modules of a crate by their path, each with its code: no comments, strings and tests."""
    source = crate / "src"
    found = {}
    for file in sorted(source.rglob("*.rs")):
        path = file.relative_to(source).with_suffix("").parts
        if path[-1] in ("lib", "mod"):
            path = path[:-1]
        if path != ("main",) and path[:1] != ("bin",) and path[-1:] != ("tests",):
            found[path] = _without_tests(_NO_CODE.sub(" ", file.read_text()))
    return found


def uses(found: Mapping[Module, str]) -> dict[Module, set[Module]]:
    """Which modules the code of each one uses. Names that a module re-exports count as those of their own module."""
    trees = {module: _USE.findall(code) for module, code in found.items()}
    imports = {module: {name: path for tree in trees[module] for name, path in _flat(tree.strip())} for module in found}
    used: dict[Module, set[Module]] = {}
    for module, code in found.items():
        paths = [path for tree in trees[module] for _, path in _flat(tree.strip())]
        paths += [tuple(path.split("::")) for path in _PATH.findall(_USE.sub(" ", code))]
        resolved = {_resolved(path, module, imports) for path in paths}
        used[module] = {other for other in resolved if other is not None and other != module}
    return used


def levels(used: Mapping[Module, set[Module]]) -> Iterator[tuple[Module, Graph]]:
    """Every folder with what its modules use of one another, in code that is theirs or below them."""
    for folder in sorted({module[:-1] for module in used if module}):
        graph: dict[str, set[str]] = {}
        depth = len(folder)
        for module, others in used.items():
            if module[:depth] != folder:
                continue
            name = module[depth] if len(module) > depth else "mod"
            inside = {other[depth] if len(other) > depth else "mod" for other in others if other[:depth] == folder}
            graph.setdefault(name, set()).update(inside - {name})
        if folder == ():
            # The crate's own file only lists what is public.
            graph = {name: others - {"mod"} for name, others in graph.items() if name != "mod"}
        yield folder, graph


def cycles(crate: Path) -> set[str]:
    """The sets of modules that use one another, each as `folder: a, b`."""
    found = set()
    for folder, graph in levels(uses(modules(crate))):
        for knot in knots(graph):
            found.add(f"{'/'.join(folder) or crate.name}: {', '.join(sorted(knot))}")
    return found


def knots(graph: Graph) -> list[set[str]]:
    """The strongly connected components with more than one module."""
    reached = {name: _reached(name, graph) for name in graph}
    found: list[set[str]] = []
    for name in graph:
        knot = {other for other in reached[name] if name in reached.get(other, set())}
        if knot and knot not in found:
            found.append(knot)
    return found


def _reached(name: str, graph: Graph) -> set[str]:
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        new = graph.get(ahead.pop(), set()) - seen
        seen |= new
        ahead += new
    return seen


def _without_tests(code: str) -> str:
    """Cuts what is compiled for tests only: a declaration up to its semicolon, or a block with its braces."""
    while match := _TESTS.search(code):
        at, depth = match.end(), 0
        if not code[: match.end()].endswith(";"):
            while at < len(code):
                depth += {"{": 1, "}": -1}.get(code[at], 0)
                at += 1
                if depth == 0 and code[at - 1] in "};":
                    break
        code = code[: match.start()] + code[at:]
    return code


def _flat(tree: str, start: Module = ()) -> Iterator[tuple[str, Module]]:
    """The paths of a `use` tree, each with the name that it gets: `a::{b, c::d as e}` has two."""
    for branch in _BRANCH.findall(tree):
        path, _, inside = branch.partition("{")
        path, _, renamed = path.partition(" as ")
        parts = (
            *start,
            *(part for part in (word.strip() for word in path.split("::")) if part not in ("", "self", "*")),
        )
        if inside:
            yield from _flat(inside.removesuffix("}"), parts)
        elif parts:
            yield renamed.strip() or parts[-1], parts


def _resolved(path: tuple[str, ...], module: Module, imports: Mapping[Module, Mapping[str, Module]]) -> Module | None:
    """The module that a path in `module` leads to; None when it leads out of the crate, or is no module."""
    first, *rest = path
    here = module
    if first == "crate":
        here = ()
    elif first == "super":
        here = module[:-1]
        while rest[:1] == ["super"]:
            here, rest = here[:-1], rest[1:]
    elif first != "self":
        if (*module, first) not in imports:
            return None
        rest = [first, *rest]
    while rest and (*here, rest[0]) in imports:
        here, rest = (*here, rest[0]), rest[1:]
    exported = imports[here].get(rest[0]) if rest and here != module else None
    return _resolved(exported, here, imports) or here if exported else here


def main(arguments: list[str]) -> int:
    """Print the cycles, or with `--graph` what uses what; the exit status is 1 when there is a cycle."""
    failed = False
    for name in CRATES:
        crate = ROOT / name
        found = sorted(cycles(crate))
        tied = sum(one.count(",") + 1 for one in found)
        print(f"{name}: {len(modules(crate))} modules, {len(found)} cycles with {tied} modules in them")
        print("".join(f"  {one}\n" for one in found), end="")
        if "--graph" in arguments:
            graph = dict(levels(uses(modules(crate)))).get((), {})
            print(
                "".join(f"  {module} -> {' '.join(sorted(graph[module])) or '-'}\n" for module in sorted(graph)), end=""
            )
        failed |= bool(found)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
