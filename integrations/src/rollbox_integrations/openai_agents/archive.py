"""The workspace as a tar archive: made and unpacked by `tar` in the sandbox, in one stream each."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import cast

from agents.sandbox.errors import WorkspaceArchiveReadError, WorkspaceArchiveWriteError, WorkspaceWriteTypeError
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tarfile

from rollbox import Process, Sandbox, SandboxError
from rollbox_integrations import outcome
from rollbox_integrations.openai_agents import faults

_IN_MEMORY_BYTES = 16 * 1024**2
_CHUNK_BYTES = 2**16
# openai-agents takes no archive with hard links back, and only GNU tar can write their content in their place.
_PACK = 'tar --version 2>/dev/null | grep -q GNU && set -- --hard-dereference "$@"; exec tar "$@"'


async def persisted(sandbox: Sandbox, root: Path, skipped: Iterable[Path]) -> io.IOBase:
    """Return the archive of a workspace; one over 16 MiB is kept on this machine's disk.

    Args:
        sandbox: that has it.
        root: of the workspace.
        skipped: what to leave out, relative to it.

    Raises:
        WorkspaceArchiveReadError: it could not be made.
    """
    excluded = sorted(f"--exclude=./{path.as_posix()}" for path in skipped if path.parts)
    words = ["sh", "-c", _PACK, "sh", *excluded, "-C", root.as_posix(), "-cf", "-", "."]
    data = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - the caller closes it
    try:
        async with await sandbox.spawn(words, cwd="/", stdin=False) as process:
            await asyncio.gather(_kept(process, data), process.stderr.read())
            ended = outcome.ended(await process.wait())
        if process.stdout.gaps:
            raise WorkspaceArchiveReadError(path=root, context={"reason": "output_lost"}, retryable=True)
        if ended.status:
            context: dict[str, object] = {"reason": "tar_failed", "output": ended.stderr.decode("utf-8", "replace")}
            raise WorkspaceArchiveReadError(path=root, context=context, retryable=False)
    except BaseException as error:
        data.close()
        if isinstance(error, SandboxError):
            raise faults.of_read(error, root) from error
        raise
    data.seek(0)
    return cast("io.IOBase", data)


async def hydrated(sandbox: Sandbox, root: Path, data: io.IOBase) -> None:
    """Unpack an archive into a workspace.

    Args:
        sandbox: that has it.
        root: of the workspace; made where it is missing.
        data: the archive; it is looked through before anything of it is sent.

    Raises:
        WorkspaceArchiveWriteError: it has a member that leads out of the workspace, or it could not be unpacked.
    """
    with SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as archive:
        while chunk := data.read(_CHUNK_BYTES):
            if not isinstance(chunk, bytes):
                raise WorkspaceWriteTypeError(path=root, actual_type=type(chunk).__name__)
            archive.write(chunk)
        archive.seek(0)
        await asyncio.to_thread(_check, archive, root)
        archive.seek(0)
        try:
            await sandbox.files.mkdir(root.as_posix())
            ended = outcome.ended(
                await sandbox.exec(["tar", "-x", "-f", "-", "-C", root.as_posix()], cwd="/", stdin=archive)
            )
        except SandboxError as error:
            raise faults.of_write(error, root) from error
    if ended.status:
        context: dict[str, object] = {"reason": "tar_failed", "output": ended.stderr.decode("utf-8", "replace")}
        raise WorkspaceArchiveWriteError(path=root, context=context, retryable=False)


async def _kept(process: Process, data: SpooledTemporaryFile[bytes]) -> None:
    async for part in process.stdout:
        data.write(part)


def _check(archive: SpooledTemporaryFile[bytes], root: Path) -> None:
    """Refuse an archive with what leads out of the workspace; a link may, as those of virtual environments do."""
    try:
        with tarfile.open(fileobj=cast("io.BufferedReader", archive), mode="r:*") as opened:
            validate_tarfile(opened, allow_external_symlink_targets=True)
    except UnsafeTarMemberError as error:
        context: dict[str, object] = {"reason": error.reason, "member": error.member}
        raise WorkspaceArchiveWriteError(path=root, context=context, cause=error, retryable=False) from error
    except (tarfile.TarError, OSError) as error:
        raise WorkspaceArchiveWriteError(path=root, cause=error, retryable=False) from error
