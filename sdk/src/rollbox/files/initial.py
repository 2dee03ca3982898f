"""Initial files of a sandbox: checked before anything is created, written before `create` returns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from rollbox.deadline import Deadline
from rollbox.errors import InvalidArgument, SandboxError, StartTimeout
from rollbox.files import paths, transfer
from rollbox.files.handle import Files
from rollbox.request import InitialFiles
from rollbox.retry import REPEATABLE

MOST_FILES = 1000
# Concurrent writes over all sandboxes of a call; a single sandbox handles as many at a time.
AT_ONCE = 32


def checked(files: InitialFiles | None) -> dict[str, bytes | Path]:
    """Return what to write, by path.

    Text becomes bytes; a local file stays a path, and is read again for each sandbox.

    Raises:
        InvalidArgument: too many files, a bad path or content, or a local file that cannot be read.
    """
    if files is None:
        return {}
    if not isinstance(files, Mapping):
        raise InvalidArgument(f"files is {type(files).__name__}, not a mapping from path to content")
    if len(files) > MOST_FILES:
        hint = "Put them into the image, or call files.upload_dir on the sandbox."
        raise InvalidArgument(f"{len(files)} files are more than {MOST_FILES}", hint=hint)
    return {(plain := _path(path)): _content(plain, content) for path, content in files.items()}


class InitialFilesWriter:
    """The initial files of the sandboxes that one call creates.

    Args:
        contents: as `checked` returns it.
        deadline: of the whole call, which includes the writes.
        own_key: whether the caller chose the idempotency key or group name.
    """

    def __init__(self, contents: Mapping[str, bytes | Path], deadline: Deadline, *, own_key: bool) -> None:
        self._contents = contents
        self._deadline = deadline
        self._own_key = own_key
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def write(self, files: Files) -> None:
        """Write all files into one sandbox, concurrently; the first failure cancels the others and is raised.

        Raises:
            StartTimeout: the start timeout is over before all are written.
            SandboxError: what `Files.write` raises.
        """
        left_s = self._deadline.left_s()
        try:
            async with asyncio.timeout(left_s) as limit, asyncio.TaskGroup() as writes:
                for path, content in self._contents.items():
                    writes.create_task(self._written(files, path, content))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        except TimeoutError as error:
            if not limit.expired():
                raise
            within = f"within the start timeout of {self._deadline.within_s:g} s"
            raise StartTimeout(f"the sandbox was ready, but its initial files were not written {within}") from error

    def keeps_sandbox_after(self, failure: BaseException) -> bool:
        """Whether to keep a sandbox although its files were not written.

        With a key of the caller's own it may be in use already. So after a cancellation or a retryable error it stays:
        a create with the same key returns it and writes the files again, else its lease or ttl ends it. After any other
        error the sandbox is deleted.
        """
        passing = isinstance(failure, SandboxError) and failure.code in REPEATABLE
        return self._own_key and (passing or isinstance(failure, asyncio.CancelledError))

    async def _written(self, files: Files, path: str, content: bytes | Path) -> None:
        async with self._slots:
            await (files.write(path, content) if isinstance(content, bytes) else files.upload(content, path))


def _path(path: str | os.PathLike[str]) -> str:
    paths.encoded("a path in files", path)
    plain = os.fspath(path)
    if not isinstance(plain, str) or not plain.startswith("/") or plain.endswith("/"):
        raise InvalidArgument(f"the path {plain!r} in files is not the absolute path of a file, like '/repo/main.py'")
    return plain


def _content(path: str, content: bytes | str | os.PathLike[str]) -> bytes | Path:
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"files[{path!r}] is not valid Unicode text; pass bytes") from error
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    if isinstance(content, os.PathLike):
        transfer.opened(Path(content)).close()
        return Path(content)
    raise InvalidArgument(f"files[{path!r}] is {type(content).__name__}: not bytes, text or the path of a local file")
