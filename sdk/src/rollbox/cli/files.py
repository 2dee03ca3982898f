"""`rollbox cp`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.options import Json
from rollbox.cli.paths import Remote, place
from rollbox.cli.progress import bars
from rollbox.errors import FileNotFound, InvalidArgument

if TYPE_CHECKING:
    from rich.progress import Progress

    from rollbox.client import Client
    from rollbox.files import Files, TransferReport


def cp(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A local path, or ID:PATH.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A local path, or ID:PATH; SRC goes into a directory.")],
    *,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Copy a directory with all in it.")] = False,
    user: Annotated[str | None, typer.Option(help="User to read or write as in the sandbox.")] = None,
    json: Json = False,
) -> None:
    """Copy a file or a directory into a sandbox, or out of it; modes and links are kept."""
    from rollbox.files.paths import shown

    async def call(client: Client) -> TransferReport:
        origin, end = place(source), place(target)
        remote = origin if isinstance(origin, Remote) else end
        if not isinstance(remote, Remote) or (isinstance(origin, Remote) and isinstance(end, Remote)):
            hint = "Write one of them as ID:/path; from sandbox to sandbox copy by way of this machine."
            raise InvalidArgument(f"one of {source!r} and {target!r} must be in a sandbox, the other here", hint=hint)
        if "-" in (source, target):
            prints = "`rollbox exec ID -- cat PATH` prints a file; `./-` is one of this name"
            raise InvalidArgument("cp copies between files, and `-` is none", hint=prints)
        files = (await client.connect(remote.sandbox_id)).files
        with _bar(shown(source).rstrip("/").rpartition("/")[2] or "/") as progress:
            if isinstance(origin, Remote):
                return await _down(files, origin.path, target, user=user, recursive=recursive, bar=progress)
            return await _up(files, Path(source), remote.path, user=user, recursive=recursive, bar=progress)

    began = time.monotonic()
    report = output.run(call, what=f"copying {source}", as_json=json, quiet=True)
    if json:
        output.data({**report.to_json(), "seconds": round(time.monotonic() - began, 3)})
        return
    for path, reason in report.skipped.items():
        output.message(f"skipped: {shown(path)} ({reason})")
    if report.skipped_count > len(report.skipped):
        output.message(f"skipped: {report.skipped_count - len(report.skipped)} more")


async def _up(
    files: Files, source: Path, target: str, *, user: str | None, recursive: bool, bar: _Bar
) -> TransferReport:
    from rollbox.files import TransferReport, transfer

    folder = _local_directory(source)
    if folder and not recursive:
        raise InvalidArgument(f"{source} is a directory", hint="Add -r to copy it with all in it.")
    if target.endswith("/") or await _is_directory(files, target, user):
        target = f"{target.rstrip('/')}/{_name(source)}"
    if folder:
        return await files.upload_dir(source, target, user=user, progress=bar)
    with transfer.opened(source) as file:
        bar.expect(os.fstat(file.fileno()).st_size)
    info = await files.upload(source, target, user=user, progress=bar)
    return TransferReport(1, info.size_bytes)


async def _down(
    files: Files, source: str, target: str, *, user: str | None, recursive: bool, bar: _Bar
) -> TransferReport:
    from rollbox.files import TransferReport

    info = await files.stat(source, user=user)
    name = os.path.basename(source.rstrip("/")) or "root"  # noqa: PTH119
    if _local_directory(Path(target)) and name not in (".", ".."):
        target = str(Path(target) / name)
    if info.kind == "directory":
        if not recursive:
            raise InvalidArgument(f"{source} is a directory", hint="Add -r to copy it with all in it.")
        return await files.download_dir(source, target, user=user, progress=bar)
    parent = Path(target).parent
    if not _local_directory(parent):
        raise InvalidArgument(f"the directory {parent} does not exist here", hint="Make it first.")
    bar.expect(info.size_bytes)
    got = await files.download(source, target, user=user, progress=bar)
    return TransferReport(1, got.size_bytes)


def _name(path: Path) -> str:
    # Resolved: "." and ".." have names too.
    return path.resolve().name


def _local_directory(path: Path) -> bool:
    return path.is_dir()


async def _is_directory(files: Files, path: str, user: str | None) -> bool:
    try:
        return (await files.stat(path, user=user)).kind == "directory"
    except FileNotFound:
        return False


class _Bar:
    """A progress bar, or nothing when stderr is not a terminal."""

    def __init__(self, shown_by: Progress | None, label: str) -> None:
        self._progress = shown_by
        self._task = None if shown_by is None else shown_by.add_task(label, total=None)

    def expect(self, total: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=total)

    def __call__(self, moved: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=moved)


@contextmanager
def _bar(label: str) -> Iterator[_Bar]:
    with bars("bytes", "speed") as shown_by:
        yield _Bar(shown_by, label)
