"""What the docstrings of public functions leave out, as far as the text of the packages shows it.

A function is public when neither its name, nor a class around it, nor its module begins with an underscore. One that
takes four or more parameters beside self has a section `Args` that names each of them; one that raises has a section
`Raises` that names each class that is raised by name in its own body.

A method of an interface carries these words once: an implementation whose docstring refers to it (`Interface.method`,
in backticks) has what that method has. The words for callers of routes and commands stand elsewhere (OpenAPI, the
options' help), so functions that a decorator registers as such are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lint.problem import Problem

PACKAGES: Final = ("controlplane", "sdk/src/rollbox")
MANY: Final = 4
# Decorators that register a function of HTTP, of the command line, of Kopf or of pydantic: `router.get(...)`.
REGISTERS: Final = re.compile(
    r"(\w+\.)*(get|put|post|patch|delete|head|command|callback|exception_handler|middleware|on\.\w+|(model|field)_\w+)"
)
# They leave the words to what they implement or declare.
SILENT: Final = ("overload", "override", "typing.overload", "typing.override")
# The last two names of `rollbox.Files.read` or ``Store.claim``.
# They mark what cannot happen, or what a subclass has to do.
NEVER: Final = ("AssertionError", "NotImplementedError")
REFERENCE: Final = re.compile(r"`(?:await )?(?:\w+\.)*(\w+\.\w+)`")
# Where the table of the command line's commands is: their docstrings are the help, and their options carry their own.
COMMANDS: Final = ("sdk/src/rollbox/cli/app.py", "_COMMANDS")
_SECTION: Final = re.compile(r"^(\s*)(Args|Returns|Yields|Raises|Cost|Source|Attributes|Example|Examples|Note):\s*$")
_ENTRY: Final = re.compile(r"^\*{0,2}(\w[\w., *|]*?)(?: \([^)]*\))?:")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Public:
    """A public function.

    Attributes:
        path: of its file.
        name: with that of the class around it.
    """

    path: str
    name: str
    node: _Function

    def missing(self, words: str) -> Iterator[str]:
        """What this docstring, or those that it refers to, should say and does not."""
        absent = [name for name in self._parameters() if name not in _entries(words, "Args")]
        if len(self._parameters()) >= MANY and absent:
            yield f"the section Args does not name {', '.join(absent)}"
        if unnamed := sorted(self._raised() - _entries(words, "Raises")):
            yield f"the section Raises does not name {', '.join(unnamed)}"

    def _parameters(self) -> list[str]:
        """The parameters' names, without those of the object or class."""
        given = self.node.args
        named = [*given.posonlyargs, *given.args]
        named = named[1:] if "." in self.name and not _decorated(self.node, "staticmethod") else named
        more = [one for one in (given.vararg, given.kwarg) if one is not None]
        return [one.arg for one in [*named, *given.kwonlyargs, *more]]

    def _raised(self) -> set[str]:
        """The classes that its body raises by name; what functions in it raise is theirs."""
        return {name for name in map(_class, _own(self.node)) if name and name not in NEVER}


def problems(sources: dict[str, str]) -> list[Problem]:
    """What is missing in the docstrings of some files.

    Args:
        sources: path -> text. References are looked up among all of them.

    Returns:
        a problem for each section that a function lacks.
    """
    trees = {path: ast.parse(text) for path, text in sources.items()}
    functions = [one for path, tree in trees.items() for one in public(tree, path)]
    documented = _Documented(functions)
    commands = _commands(trees[COMMANDS[0]]) if COMMANDS[0] in trees else set()
    found = []
    for one in functions:
        registered = any(REGISTERS.fullmatch(name) for name in _decorators(one.node))
        if registered or _decorated(one.node, *SILENT) or (one.path, one.name) in commands:
            continue
        words = "\n".join(documented.words(one))
        found += [Problem(one.path, one.node.lineno, f"{one.name}: {what}") for what in one.missing(words)]
    return sorted(found)


class _Documented:
    """The docstrings of public functions by name."""

    def __init__(self, functions: list[Public]) -> None:
        self._named: dict[str, list[Public]] = {}
        for one in functions:
            self._named.setdefault(one.name, []).append(one)

    def words(self, one: Public, seen: frozenset[int] = frozenset()) -> Iterator[str]:
        """The docstring of a function, and those that it refers to."""
        own, seen = _docstring(one.node), seen | {id(one)}
        yield own
        for name in REFERENCE.findall(own):
            for other in self._named.get(name, ()):
                if id(other) not in seen:
                    yield from self.words(other, seen)


def _commands(tree: ast.Module) -> set[tuple[str, str]]:
    """The files and names of the functions that are commands of the command line."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == COMMANDS[1]:
            named = (str(one).split(":") for one in ast.literal_eval(node.value).values())
            return {(f"{Path(COMMANDS[0]).parent}/{module}.py", function) for module, function in named}
    raise LookupError(f"{COMMANDS[0]} has no table {COMMANDS[1]}")


def public(tree: ast.Module, path: str) -> Iterator[Public]:
    """The public functions of a module, constructors and the like left out."""
    if any(part.startswith("_") and part != "__init__.py" for part in Path(path).parts):
        return
    for node in tree.body:
        if isinstance(node, _Function) and not node.name.startswith("_"):
            yield Public(path, node.name, node)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            methods = (one for one in node.body if isinstance(one, _Function) and not one.name.startswith("_"))
            yield from (Public(path, f"{node.name}.{one.name}", one) for one in methods)


def sources(root: Path) -> dict[str, str]:
    """The texts of the packages below a checkout's root, generated ones left out."""
    files = (file for package in PACKAGES for file in sorted((root / package).rglob("*.py")))
    return {file.relative_to(root).as_posix(): file.read_text() for file in files if "_pb2" not in file.name}


def _docstring(node: _Function) -> str:
    return ast.get_docstring(node) or ""


def _decorators(node: _Function) -> list[str]:
    return [ast.unparse(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list]


def _decorated(node: _Function, *names: str) -> bool:
    return any(name in names for name in _decorators(node))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function's body but those of functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield child
            yield from _own(child)


def _class(node: ast.AST) -> str:
    """The class that a statement raises by name: empty for anything else, such as raising what was caught."""
    if not isinstance(node, ast.Raise) or node.exc is None:
        return ""
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    name = raised.attr if isinstance(raised, ast.Attribute) else getattr(raised, "id", "")
    return name if name[:1].isupper() else ""


def _entries(docstring: str, section: str) -> set[str]:
    """The names that a section explains, several before one colon included."""
    names, within, indent = set[str](), False, 0
    for line in docstring.splitlines():
        if head := _SECTION.match(line):
            within, indent = head[2] == section, len(head[1]) + 4
        elif within and line.strip() and len(line) - len(line.lstrip()) < indent:
            within = False
        elif within and len(line) - len(line.lstrip()) == indent and (entry := _ENTRY.match(line.strip())):
            names |= {name.strip(" *").rpartition(".")[2] for name in re.split(r",| and | or |\|", entry[1])}
    return names
