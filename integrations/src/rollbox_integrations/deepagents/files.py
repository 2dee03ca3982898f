"""Files of an agent's sandbox in deepagents' words, on the loop of the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

from deepagents.backends.protocol import (
    INVALID_PATH,
    DeleteResult,
    EditResult,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    LsResult,
    ReadResult,
    WriteResult,
)

import rollbox
from rollbox import SandboxError
from rollbox_integrations.deepagents import faults, texts

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
# A larger text is paged by deepagents' own program in the sandbox, and comes page by page.
_WHOLE_TEXT_BYTES = 2 * 1024**2
# Of a file that is held in memory here.
_MOST_FILE_BYTES = 256 * 1024**2
_MOST_ENTRIES = 100_000
_FILES_AT_ONCE = 8


class AgentFiles:
    """The files of a sandbox. What is wrong with a path is in the answer; all else is raised."""

    def __init__(self, files: rollbox.Files, told: Callable[[SandboxError], Exception]) -> None:
        """Begin.

        Args:
            files: of the sandbox.
            told: what is raised for an error that is not of a path.
        """
        self._files = files
        self._told = told
        # Edits of one turn come at once, and each is a read and a write.
        self._editing = asyncio.Lock()

    async def upload(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, some at once."""

        async def one(file: tuple[str, bytes]) -> FileUploadResponse:
            path, content = file
            wrong = await self._put(path, content) if path.startswith("/") else INVALID_PATH
            return FileUploadResponse(path=path, error=wrong)

        return await _each(files, one)

    async def download(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files, some at once."""

        async def one(path: str) -> FileDownloadResponse:
            data = await self._whole(path) if path.startswith("/") else INVALID_PATH
            if isinstance(data, str):
                return FileDownloadResponse(path=path, error=data)
            return FileDownloadResponse(path=path, content=data)

        return await _each(paths, one)

    async def ls(self, path: str) -> LsResult:
        """List a directory."""
        try:
            entries = await self._files.list(path, limit=_MOST_ENTRIES)
        except SandboxError as error:
            return LsResult(error=f"Path '{path}': {self._wrong(error)}")
        if entries.truncated:
            return LsResult(error=f"Path '{path}': it has more than {_MOST_ENTRIES} entries")
        return LsResult(entries=[_entry(path, entry) for entry in entries])

    async def read(self, path: str, offset: int, limit: int) -> ReadResult | None:
        """Show a page of a file; None: the text is too large to be paged here."""
        try:
            data = await self._files.read(path, length=_WHOLE_TEXT_BYTES + 1)
        except SandboxError as error:
            return texts.failed(path, self._wrong(error))
        if len(data) > _WHOLE_TEXT_BYTES and texts.is_text(path):
            return None
        return texts.read(path, data, offset, limit)

    async def write(self, path: str, content: str) -> WriteResult:
        """Write a text."""
        wrong = await self._put(path, content.encode())
        return WriteResult(path=path) if wrong is None else WriteResult(error=f"Cannot write '{path}': {wrong}")

    async def edit(self, path: str, old: str, new: str, *, every: bool) -> EditResult:
        """Replace a part of a text; edits that come at once are made one after the other."""
        if not old:
            return EditResult(error="Error: old_string is empty")
        async with self._editing:
            made = await self._replaced(path, old, new, every=every)
            wrong = made if isinstance(made, str) else await self._put(path, made[0].encode())
        if isinstance(made, str) or wrong is not None:
            return EditResult(error=f"Error: File '{path}': {wrong}")
        return EditResult(path=path, occurrences=made[1])

    async def _replaced(self, path: str, old: str, new: str, *, every: bool) -> tuple[str, int] | str:
        data = await self._whole(path)
        if isinstance(data, str):
            return data
        try:
            return texts.replaced(data.decode(), old, new, every=every)
        except UnicodeDecodeError:
            return "it is not a text file"

    async def delete(self, path: str) -> DeleteResult:
        """Delete a file, or a directory with all in it."""
        try:
            await self._files.remove(path, recursive=True)
        except SandboxError as error:
            return DeleteResult(error=f"Error: '{path}': {self._wrong(error)}")
        return DeleteResult(path=path)

    async def _put(self, path: str, content: bytes) -> str | None:
        """Write a file; returns what is wrong with its path."""
        try:
            await self._files.write(path, content)
        except SandboxError as error:
            return self._wrong(error)
        return None

    async def _whole(self, path: str) -> bytes | str:
        """Return all of a file, or what is wrong with its path."""
        try:
            data = await self._files.read(path, length=_MOST_FILE_BYTES + 1)
        except SandboxError as error:
            return self._wrong(error)
        return data if len(data) <= _MOST_FILE_BYTES else f"it is over {_MOST_FILE_BYTES >> 20} MiB"

    def _wrong(self, error: SandboxError) -> str:
        if (wrong := faults.of_file(error)) is None:
            raise self._told(error) from error
        return wrong


async def _each(items: Iterable[_Item], one: Callable[[_Item], Awaitable[_Answer]]) -> list[_Answer]:
    """Call for each, some at once, and return the answers in order; the first failure ends the others."""
    gate = asyncio.Semaphore(_FILES_AT_ONCE)

    async def admitted(item: _Item) -> _Answer:
        async with gate:
            return await one(item)

    tasks = [asyncio.create_task(admitted(item)) for item in items]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _entry(folder: str, entry: rollbox.FileInfo) -> FileInfo:
    name = entry.path.rpartition("/")[2]
    changed = datetime.fromtimestamp(entry.modified_at_ms / 1000, UTC).isoformat()
    path = f"{folder.rstrip('/')}/{name}"
    return FileInfo(path=path, is_dir=entry.kind == "directory", size=entry.size_bytes, modified_at=changed)
