"""`rollbox python`: cells in an interpreter of a sandbox, at a prompt or from a file."""

from __future__ import annotations

import ast
import sys
from codeop import CommandCompiler
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox import labels as label_rules
from rollbox.cli import output
from rollbox.cli.harmless import Harmless
from rollbox.cli.options import time_option
from rollbox.errors import SandboxError

if TYPE_CHECKING:
    from rollbox.interpreter.cell import Cell, CellResult
    from rollbox.interpreter.options import InterpreterOptions
    from rollbox.sync import Interpreter

_EXIT_BY_END = {"deadline": 124, "interrupted": 130}


def python(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")],
    *,
    code: Annotated[str | None, typer.Option("--code", "-c", metavar="CODE", help="Run this, and end.")] = None,
    kernel: Annotated[str | None, typer.Option(help="jupyter: the ipykernel of the image runs it.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Directory to start in.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="May be repeated.")] = None,
    user: Annotated[str | None, typer.Option(help="User to run as.")] = None,
    timeout: Annotated[float | None, time_option("Time until a cell is interrupted: seconds, or 90s, 5m.")] = None,
) -> None:
    """Run Python in a sandbox, at a prompt that keeps its variables; Ctrl-C interrupts a cell, Ctrl-D ends. Without a
    terminal the standard input is one cell, whose exit code is 1 if it raises, 124 after a deadline.
    """
    from rollbox import sync

    try:
        # Not as a context manager, which would delete the sandbox.
        sandbox = sync.Sandbox.connect(sandbox_id)
        options: InterpreterOptions = {"cwd": cwd, "env": label_rules.parse(env or ()), "user": user}
        with sandbox.interpreter(kernel=kernel, **options) as interpreter:  # type: ignore[arg-type, misc]
            if code is None and sys.stdin.isatty():
                _prompt(interpreter, timeout)
                return
            cell = _run(interpreter, sys.stdin.read() if code is None else code, timeout)
    except SandboxError as error:
        output.fail(error)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(_exit_code(cell))


def _prompt(interpreter: Interpreter, timeout: float | None) -> None:
    # Keeps what was typed, for the arrow keys, where Python has it; nothing is written to a file.
    with suppress(ImportError):
        import readline  # noqa: F401

    output.message(f"Python {interpreter.version} in the sandbox; Ctrl-D ends")
    told = False
    while (code := _typed()) is not None:
        try:
            told = _run(interpreter, code, timeout, told=told).variables_lost
        except KeyboardInterrupt:
            told = False
            output.message("interrupted")


def _typed() -> str | None:
    """Ask for lines until they are whole; None at the end of the input."""
    lines: list[str] = []
    while True:
        try:
            lines.append(input("... " if lines else ">>> "))
        except EOFError:
            return None
        except KeyboardInterrupt:
            lines.clear()
            sys.stdout.write("\n")
            continue
        if whole("\n".join(lines)):
            return "\n".join(lines)


def whole(code: str) -> bool:
    """Whether code needs no further line, as Python's own prompt has it; what is wrong is for the sandbox to say."""
    compiler = CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        return compiler(code) is not None
    except (SyntaxError, ValueError, OverflowError):
        return True


def _run(interpreter: Interpreter, code: str, timeout: float | None, *, told: bool = False) -> Cell:
    """Run one cell; `told`: the cell before has said that the variables are gone."""
    from rollbox.interpreter.cell import Cell, CellOutput

    harmless = {"stdout": Harmless(), "stderr": Harmless()}
    with interpreter.stream(code, timeout=timeout) as events:
        for event in events:
            if isinstance(event, CellOutput):
                _write(event.stream, harmless[event.stream], event.data)
            elif isinstance(event, Cell):
                cell = event
            else:
                _write("stdout", Harmless(), _shown(event))
    _tell(cell, told=told)
    return cell


def _write(name: str, harmless: Harmless, data: bytes) -> None:
    stream = sys.stdout if name == "stdout" else sys.stderr
    stream.buffer.write(harmless(data) if stream.isatty() else data)
    stream.flush()


def _shown(result: CellResult) -> bytes:
    others = [f"[{mime}: {len(data)} bytes]" for mime, data in result.forms.items() if mime.startswith("image/")]
    return " ".join([result.text or "", *others]).strip().encode() + b"\n"


def _tell(cell: Cell, *, told: bool) -> None:
    if cell.restarted and not told:
        output.message("the interpreter before has ended: the variables are gone")
    if cell.error is not None:
        _write("stderr", Harmless(), (cell.error.traceback or f"{cell.error.name}: {cell.error.value}\n").encode())
    if cell.stdout_truncated or cell.stderr_truncated:
        output.message(f"of {cell.stdout_total_bytes + cell.stderr_total_bytes} bytes of output the rest was not kept")
    if cell.end in {"deadline", "died"}:
        lost = "; the variables are gone" if cell.variables_lost else ""
        output.message(f"the cell ended as {cell.end}{': ' if cell.reason else ''}{cell.reason}{lost}")


def _exit_code(cell: Cell) -> int:
    return _EXIT_BY_END.get(cell.end, 0 if cell.ok else 1)
