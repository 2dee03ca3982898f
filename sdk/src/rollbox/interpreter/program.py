"""The resident program as it is sent to a sandbox: a line for `python3 -c`, and the source that it reads. Pure."""

from __future__ import annotations

from functools import cache
from importlib import resources

_FILES = ("wire", "interrupts", "output", "display", "hooks", "code", "serve")
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


@cache
def source() -> bytes:
    """The program, to be written to the input of `argv()`."""
    folder = resources.files("rollbox.interpreter.resident")
    sources = [(name, (folder / f"{name}.py").read_text()) for name in _FILES]
    return f"SOURCES = {sources!r}\n{_LOADER}".encode()


def argv() -> list[str]:
    """What is run in the sandbox. The program comes over stdin, so that nothing is written there."""
    read = "import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])), {'__name__': '_rollbox'})"
    return ["python3", "-c", read, str(len(source()))]
