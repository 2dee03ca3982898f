"""Runs what was asked for: one sandbox for one request, whatever becomes of it."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from rollbox import ExecResult, Sandbox, SandboxError, errors
from rollbox_bridges.faults import ENDED
from rollbox_bridges.fusion import words
from rollbox_bridges.fusion.languages import recipe_of
from rollbox_bridges.fusion.requests import Notebook, Program
from rollbox_bridges.fusion.shelves import Kind, Shelves

_HOME: Final = "/tmp/program"  # noqa: S108 - of a sandbox
# Of each stream of a command or cell.
_MOST_OUTPUT_BYTES: Final = 2**20
# Of all files that are sent back.
_MOST_FETCHED_BYTES: Final = 2**26
# A sandbox that has ended before anything ran in it is replaced; so many in a row say that it is no chance.
_TRIES: Final = 3
_MISSING: Final = {"command_not_found": 127, "not_executable": 126}


class LanguageMissing(Exception):  # noqa: N818 - of an image
    """An image has not what a language needs: `command` names it."""

    def __init__(self, command: str) -> None:
        super().__init__(f"the image has no {command}")
        self.command = command


async def run(asked: Program | Notebook, kind: Kind, shelves: Shelves) -> dict[str, Any]:
    """Run a program or cells.

    Returns:
        the answer to the request.

    Raises:
        LanguageMissing: the image has no such compiler or interpreter.
        SandboxError: by no fault of the program.
    Cancel safety: the sandbox is deleted, with all that runs in it.
    """
    if isinstance(asked, Program):
        return await _run_program(asked, kind, shelves)
    return await _run_notebook(asked, kind, shelves)


async def _run_program(program: Program, kind: Kind, shelves: Shelves) -> dict[str, Any]:
    recipe = recipe_of(program.language, program.files)
    files = {**program.files, recipe.file: recipe.text(program.code).encode()}
    async with _prepared(program, kind, shelves, files) as sandbox:
        commands = _Commands(sandbox)
        build = await commands.run(recipe.build, "", program.build_s) if recipe.build else None
        built = build is None or build["return_code"] == 0
        run = await commands.run(recipe.run, program.stdin, program.run_s) if built else None
        kept, left_out = await _fetched(sandbox, program.fetch)
        message = "; ".join([*words.notes(commands.results), *left_out])
        return words.answer(build, run, kept, message=message, sandbox_id=sandbox.id)


async def _run_notebook(notebook: Notebook, kind: Kind, shelves: Shelves) -> dict[str, Any]:
    async with _prepared(notebook, kind, shelves, notebook.files) as sandbox:
        try:
            driver, cells = await _cells(sandbox, notebook)
        except SandboxError as error:
            if error.fault != "workload":
                raise
            driver, cells = words.ended(error), []
        kept, left_out = await _fetched(sandbox, notebook.fetch)
        return words.notebook_answer(driver, cells, kept, message="; ".join(left_out), sandbox_id=sandbox.id)


async def _cells(sandbox: Sandbox, notebook: Notebook) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    loop = asyncio.get_running_loop()
    try:
        interpreter = await sandbox.interpreter("python", cwd=_HOME, max_output_bytes=_MOST_OUTPUT_BYTES)
    except errors.InvalidArgument as error:
        raise LanguageMissing("python3") from error
    began, cells = loop.time(), []
    async with interpreter:
        for code in notebook.cells:
            left_s = began + notebook.total_s - loop.time()
            limit_s = min(left_s, notebook.cell_s) if notebook.cell_s else left_s
            cell = None if limit_s <= 0 else await interpreter.run(code, timeout=limit_s)
            if cell is not None:
                cells.append(words.cell_of(cell))
            if cell is None or cell.end != "finished":
                over, why = cell is None or cell.end == "deadline", "" if cell is None else cell.reason
                return words.told(1, why, loop.time() - began, over=over), cells
    return words.told(0, "", loop.time() - began), cells


@asynccontextmanager
async def _prepared(
    asked: Program | Notebook, kind: Kind, shelves: Shelves, files: Mapping[str, bytes]
) -> AsyncIterator[Sandbox]:
    """A sandbox with files in the program's directory, which ends with the block."""
    sandbox = await _with_files(kind, shelves, files, asked.longest_s)
    try:
        yield sandbox
    finally:
        shelves.end(sandbox)


async def _with_files(kind: Kind, shelves: Shelves, files: Mapping[str, bytes], seconds: float) -> Sandbox:
    for last in [False] * (_TRIES - 1) + [True]:
        sandbox = await shelves.take(kind, seconds)
        try:
            await _write(sandbox, files)
        except SandboxError as error:
            shelves.end(sandbox)
            # It was ready for a while, and may have ended since; nothing of the program has run.
            if last or error.code not in ENDED:
                raise
        except BaseException:
            shelves.end(sandbox)
            raise
        else:
            return sandbox
    raise AssertionError("the last try returns or raises")


async def _write(sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
    """Write files, and make the directory of the program where none of them does."""
    paths = {_placed(name): content for name, content in files.items()}
    if not any(path.startswith(f"{_HOME}/") for path in paths):
        await sandbox.files.mkdir(_HOME)
    for path, content in paths.items():
        await sandbox.files.write(path, content)


class _Commands:
    """Runs the commands of one program; `results` has those that ended by themselves or by their time."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.results: list[ExecResult] = []

    async def run(self, command: tuple[str, ...], stdin: str, limit_s: float) -> dict[str, Any]:
        """Run one, to its end or to that of its sandbox by its own doing."""
        try:
            result = await self._sandbox.exec(
                list(command), cwd=_HOME, stdin=stdin, timeout=limit_s, max_output_bytes=_MOST_OUTPUT_BYTES, keep="head"
            )
        except errors.InvalidArgument as error:
            code = _MISSING.get(error.details.get("reason", ""))
            if code is None:
                raise
            if not command[0].startswith("./"):
                raise LanguageMissing(command[0]) from error
            return words.told(code, str(error))
        except SandboxError as error:
            if error.fault != "workload":
                raise
            return words.ended(error)
        self.results.append(result)
        return words.ran(result)


async def _fetched(sandbox: Sandbox, names: tuple[str, ...]) -> tuple[dict[str, bytes], list[str]]:
    """Read the files of these names that there are, and say which are too long."""
    kept: dict[str, bytes] = {}
    left_out: list[str] = []
    room = _MOST_FETCHED_BYTES
    for name in dict.fromkeys(names):
        try:
            size = await _size(sandbox, name)
            if size is not None and size > room:
                left_out.append(
                    f"{name} was left out: its {size} bytes are more than the {room} that there is room for"
                )
            elif size is not None:
                kept[name] = await sandbox.files.read(_placed(name), length=size)
                room -= len(kept[name])
        except (errors.FileNotFound, errors.InvalidArgument):
            continue
        except SandboxError as error:
            # With the sandbox the program has ended its files.
            if error.fault != "workload":
                raise
            break
    return kept, left_out


async def _size(sandbox: Sandbox, name: str) -> int | None:
    info = await sandbox.files.stat(_placed(name))
    return info.size_bytes if info.kind == "file" else None


def _placed(name: str) -> str:
    """Where a file of a request is: an absolute path stays, a relative one is below the program's directory."""
    return posixpath.normpath(posixpath.join(_HOME, name))
