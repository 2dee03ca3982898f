"""The resident programs as they are sent to a sandbox: what is run there, and the source that it reads. Pure."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import NamedTuple

from rollbox.errors import InvalidArgument

_FOLDER = resources.files("rollbox.interpreter.resident")
_NEEDS_PYTHON = "An interpreter needs python3 (3.8 or newer) on the PATH of the image."
_NEEDS_KERNEL = (
    "A Jupyter kernel needs ipykernel in the python3 of the image (`pip install ipykernel`), and a /tmp to write to; "
    "without `kernel` an interpreter needs neither."
)
_NEEDS_NODE = "An interpreter of Node needs node (18 or newer) and sh on the PATH of the image."
# Node cannot copy descriptors: its shell moves them apart from what sub-processes inherit.
_APART = 'exec node -e "$0" "$1" 3<&0 4>&1 </dev/null 1>&2'
_NODE_LOADER = """
const fs = require('fs'), source = Buffer.alloc(Number(process.argv[1]));
for (let at = 0, took = 1; at < source.length && took; at += took) {
  took = fs.readSync(3, source, at, source.length - at, null);
}
const wrapped = '(function (require, process, requests, frames) {' + source + '})';
require('vm').runInThisContext(wrapped, { filename: '<rollbox node>' })(require, process, 3, 4);
"""
_LOADER = """
import builtins, sys
if sys.version_info < (3, 8):
    sys.exit("an interpreter needs Python 3.8 or newer, and this is " + sys.version.split()[0])
def load():
    kind = type(sys)
    package = sys.modules["_rollbox"] = kind("_rollbox")
    package.__path__ = []
    for name, source in SOURCES:
        module = kind("_rollbox." + name)
        module.__package__ = "_rollbox"
        # Its own: a cell may replace what all others have.
        module.__builtins__ = dict(vars(builtins))
        sys.modules["_rollbox." + name] = module
        exec(compile(source, "<rollbox " + name + ">", "exec"), vars(module))
        setattr(package, name, module)
    for name in [name for name in sys.modules if name.partition(".")[0] == "_rollbox"]:
        del sys.modules[name]
    module.main()
load()
"""


class Program(NamedTuple):
    """A program that runs cells.

    Attributes:
        name: of the program of the image that runs it.
        argv: what is run in the sandbox. The source comes over stdin, so that nothing is written there.
        source: the beginning of its input.
        needs: what the image has to have for it, in a sentence.
    """

    name: str
    argv: list[str]
    source: str
    needs: str


def chosen(language: str, kernel: str | None) -> Program:
    """The program for a language.

    Raises:
        InvalidArgument: there is none.
    """
    if language == "node":
        if kernel is not None:
            raise InvalidArgument(f"kernel is {kernel!r}, and that of Node is its own: leave it out")
        return _node()
    if language != "python":
        raise InvalidArgument(f"there is no interpreter of {language!r}, only of 'python' and 'node'")
    if kernel is None:
        return _python(("wire", "interrupts", "output", "display", "hooks", "code", "serve"), _NEEDS_PYTHON)
    if kernel != "jupyter":
        raise InvalidArgument(f"there is no kernel {kernel!r}, only 'jupyter'")
    return _python(("wire", "display", "ipykernel_process", "jupyter"), _NEEDS_KERNEL)


@cache
def _python(files: tuple[str, ...], needs: str) -> Program:
    """A program of some of the resident files, of which the last has `main`."""
    sources = [(name, (_FOLDER / f"{name}.py").read_text()) for name in files]
    source = f"SOURCES = {sources!r}\n{_LOADER}"
    read = "import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])), {'__name__': '_rollbox'})"
    return Program("python3", ["python3", "-c", read, str(len(source))], source, needs)


@cache
def _node() -> Program:
    source = (_FOLDER / "node.js").read_text()
    return Program("node", ["sh", "-c", _APART, _NODE_LOADER, str(len(source))], source, _NEEDS_NODE)
