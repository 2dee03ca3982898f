"""The part of a sandbox that scrubbing a repository uses, on this machine's own files and with its own Git."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rollbox.errors import FileNotFound
from rollbox.files import FileInfo, Listing
from rollbox.result import ExecResult


def _info(path: Path) -> FileInfo:
    found = path.lstat()
    kinds = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "symlink"}
    told = {
        "path": str(path),
        "kind": kinds.get(stat.S_IFMT(found.st_mode), "other"),
        "size_bytes": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "uid": found.st_uid,
        "gid": found.st_gid,
        "modified_at_ms": 0,
    }
    return FileInfo.from_json(told)


def _read(path: Path, length: int | None) -> bytes:
    try:
        return path.read_bytes()[:length]
    except FileNotFoundError as error:
        raise FileNotFound(str(error)) from error


def _listed(path: Path, limit: int) -> Listing:
    found = sorted(path.iterdir())
    return Listing([_info(one) for one in found[:limit]], truncated=len(found) > limit)


def _there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _move(source: Path, target: Path) -> None:
    assert not _there(target)
    source.rename(target)


def _remove(path: Path, *, missing_ok: bool) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=missing_ok)


class LocalFiles:
    """Files by their absolute paths."""

    async def stat(self, path: str, *, follow: bool = True, user: str | None = None) -> FileInfo:
        assert not follow
        if not _there(Path(path)):
            raise FileNotFound(f"{path} does not exist")
        return _info(Path(path))

    async def exists(self, path: str, *, follow: bool = True, user: str | None = None) -> bool:
        return _there(Path(path))

    async def list(self, path: str, *, limit: int = 10_000, user: str | None = None) -> Listing:
        return _listed(Path(path), limit)

    async def read(self, path: str, *, length: int | None = None, user: str | None = None) -> bytes:
        return _read(Path(path), length)

    async def write(self, path: str, data: str, *, user: str | None = None) -> None:
        await asyncio.to_thread(Path(path).write_text, data)

    async def move(self, source: str, target: str, *, user: str | None = None) -> None:
        _move(Path(source), Path(target))

    async def remove(
        self, path: str, *, recursive: bool = False, missing_ok: bool = False, user: str | None = None
    ) -> None:
        _remove(Path(path), missing_ok=missing_ok)


class LocalSandbox:
    """Runs commands as processes of the test."""

    id = "sb-local"

    def __init__(self) -> None:
        self.files = LocalFiles()
        self.env: Mapping[str, str] = {}

    async def exec(
        self,
        cmd: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        user: str | None,
        stdin: bytes = b"",
        timeout: float | None = None,  # noqa: ASYNC109
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        process = await self._process(cmd, cwd, env)
        out, err = await process.communicate(stdin)
        told = {"exec_id": "e", "end": "exited", "exit_code": process.returncode}
        texts = {"stdout": out.decode("utf-8", "surrogateescape"), "stderr": err.decode("utf-8", "replace")}
        return SimpleNamespace(**told, **texts, stdout_bytes=out, stdout_truncated=False)  # type: ignore[return-value]

    @asynccontextmanager
    async def _spawned(self, process: asyncio.subprocess.Process) -> AsyncIterator[Any]:
        out, _ = await process.communicate()

        async def lines() -> AsyncIterator[str]:
            for line in out.decode().splitlines():
                yield line

        class Result:
            def check(self) -> Result:
                assert process.returncode == 0
                return self

        async def wait() -> Result:
            return Result()

        yield SimpleNamespace(stdout=SimpleNamespace(lines=lines), wait=wait)

    async def spawn(
        self,
        cmd: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        user: str | None,
        stdin: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Any:
        return self._spawned(await self._process(cmd, cwd, env))

    async def _process(self, cmd: Sequence[str], cwd: str, env: Mapping[str, str]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *cmd,
            cwd=cwd,
            env={"PATH": os.environ["PATH"], **self.env, **env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
