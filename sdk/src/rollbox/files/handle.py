"""`sandbox.files`: read, write, list, watch and transfer the files of a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

from rollbox._problem import SandboxError
from rollbox.errors import Conflict, FileNotFound, InvalidArgument, StreamInterrupted
from rollbox.files import frames, paths, transfer
from rollbox.files.info import FileChange, FileInfo, Listing, TransferReport
from rollbox.files.pack import packed
from rollbox.files.paths import SandboxPath
from rollbox.files.transfer import Progress
from rollbox.files.unpack import Unpacker
from rollbox.gateway import Gateway, SandboxAccess
from rollbox.landing import Landing, NoReader, beside, directory, folder, told
from rollbox.reading import Reading
from rollbox.request import Readable, bits, count
from rollbox.retry import Resumption
from rollbox.transport import Body, Source, error_from_problem

_Pairs: TypeAlias = list[tuple[str, str | bytes]]
_RESUME_BUDGET_S = 60.0
# The gateway sends a heartbeat every 5 s.
_WATCH_SILENCE_S = 15.0
_MOST_ENTRIES = 100_000
# Between two looks whether a local FIFO has a reader, which the kernel does not report.
_READER_S = 0.05


class Files:
    """Files of one sandbox, as a process in it sees them: its file system, its links, its permissions.

    Paths are absolute, or relative to the sandbox's working directory; str, bytes or path objects. `user` is the name
    or number of the user that the call acts as, as for `exec`. All methods raise `FileNotFound`, `PermissionDenied`,
    `Conflict` (the target exists, is not empty or is busy), `NoSpace` or `InvalidArgument` (`details["reason"]`:
    is_directory, not_directory, name_too_long, symlink_loop, not_regular) as the kernel reports them, and the errors
    of `exec` for a sandbox that has ended.
    """

    def __init__(self, gateway: Gateway, access: SandboxAccess) -> None:
        """Use `sandbox.files` instead."""
        self._gateway = gateway
        self._access = access

    async def read(
        self, path: SandboxPath, *, offset: int = 0, length: int | None = None, user: str | None = None
    ) -> bytes:
        """Return the bytes of a file, in memory; `open_read` is for large ones. As `Files.open_read`."""
        return b"".join([part async for part, _ in self._parts(path, offset, length, user)])

    async def read_text(self, path: SandboxPath, *, encoding: str = "utf-8", user: str | None = None) -> str:
        """Return the text of a file; UnicodeDecodeError when its bytes are not valid in the encoding."""
        return (await self.read(path, user=user)).decode(encoding)

    def open_read(
        self, path: SandboxPath, *, offset: int = 0, length: int | None = None, user: str | None = None
    ) -> Reading[bytes]:
        """Iterate over the bytes of a file as they arrive, in constant memory.

        A broken connection is resumed at the same offset, for up to 60 s; size and digest are checked at the end.

        Args:
            path: of the file.
            user: the user to read as.
            offset: of the first byte.
            length: how many bytes at most; None is to the end.

        Raises:
            Conflict: the connection broke, and the file had changed when it was resumed.
            Internal: size or digest of the received data are not those of the sent data.
        Cancel safety: a cancelled step loses nothing, the next one goes on.
        """

        async def parts() -> AsyncGenerator[bytes, None]:
            async for part, _ in self._parts(path, offset, length, user):
                yield part

        return Reading(parts())

    async def write(
        self,
        path: SandboxPath,
        data: bytes | str | AsyncIterable[bytes] | Readable,
        *,
        mode: int | None = None,
        owner: str | None = None,
        user: str | None = None,
        parents: bool = True,
        in_place: bool = False,
    ) -> FileInfo:
        """Write a file: the old content stays until all data have come and are checked.

        The data go to a new file, which gets owner, group, mode, access control list and extended attributes of the old
        one and is moved over it, so that readers see either the old content or the new content; other hard links and
        programs that have it open keep the old. Where a new file could not stand for the old one, the data are written
        into that: it is a mount point like /etc/hosts, belongs to another user, or its directory may not be written to.
        Who may not write to a file may not replace it either, except its owner.

        Args:
            path: of the file; a symbolic link is followed.
            data: bytes, text (as UTF-8), an open binary file, or an asynchronous iterator of bytes.
            mode: permissions like 0o755; None keeps those of the old file, or what the umask leaves of 0666.
            owner: the file's owner as `user[:group]`; None keeps that of the old file, or is the user that writes.
            user: the user to write as.
            parents: make missing directories.
            in_place: write into the old file as a shell does, so that its other hard links and programs that have it
                open see the new content; a reader may see a part of it.

        Returns:
            the new file, with the digest that the sandbox computed, which the SDK has compared with its own.

        Raises:
            NoSpace: the disk is full; the old file is unchanged.
            InvalidArgument: the data are of another type, or the mode is none.
        Cancel safety: the old file is unchanged, or the new one is complete.
        """
        query = [*self._place(path, user), ("parents", _flag(parents)), *_in_place(in_place)]
        if mode is not None:
            query.append(("mode", f"{bits('mode', mode, 0o7777):04o}"))
        if owner is not None:
            query.append(("owner", owner))
        if isinstance(data, str):
            data = data.encode()
        if isinstance(data, bytes | bytearray | memoryview):
            whole = bytes(data)
            digest = await transfer.sha256(whole)
            query += [("size", str(len(whole))), ("sha256", digest)]
            if len(whole) <= transfer.SMALL_BYTES:
                return await self._put_file(query, whole, digest=digest)
            return await self._put_file(query, transfer.of_bytes(whole), digest=digest)
        if isinstance(data, AsyncIterable):
            return await self._put_file(query, transfer.of_iterator(data))
        if not hasattr(data, "read"):
            raise InvalidArgument(f"data is {type(data).__name__}: not bytes, text, a file or an asynchronous iterator")
        return await self._put_file(query, transfer.of_iterator(transfer.of_file(data)))

    async def stat(self, path: SandboxPath, *, follow: bool = True, user: str | None = None) -> FileInfo:
        """Return what is at a path; with `follow=False`, a symbolic link itself."""
        body = await self._call("GET", "file/info", [*self._place(path, user), ("follow", _flag(follow))])
        return FileInfo.from_json(body)

    async def exists(self, path: SandboxPath, *, follow: bool = True, user: str | None = None) -> bool:
        """Whether the path exists."""
        try:
            await self.stat(path, follow=follow, user=user)
        except FileNotFound:
            return False
        return True

    async def list(
        self, path: SandboxPath, *, recursive: bool = False, limit: int = 10_000, user: str | None = None
    ) -> Listing:
        """List a directory, sorted by path.

        Args:
            path: of the directory.
            recursive: list everything below it.
            limit: how many entries at most, up to 100,000; `.truncated` is set when there are more, and it is the
                sandbox's kernel that chooses which come.
            user: the user to list as.

        Raises:
            InvalidArgument: the limit is not a whole number from 1 to 100,000.
        """
        if count("limit", limit) > _MOST_ENTRIES:
            raise InvalidArgument(f"limit {limit} is over {_MOST_ENTRIES}", hint="List single directories instead.")
        query = [*self._place(path, user), ("recursive", _flag(recursive)), ("limit", str(limit))]
        body = await self._call("GET", "directory", query)
        entries = sorted(map(FileInfo.from_json, body["entries"]), key=lambda entry: entry.path.split("/"))
        return Listing(entries, truncated=body["truncated"])

    async def mkdir(
        self, path: SandboxPath, *, parents: bool = True, mode: int | None = None, user: str | None = None
    ) -> FileInfo:
        """Make a directory.

        Args:
            path: of the directory.
            parents: make missing directories above it too; an existing one is no error then.
            mode: permissions like 0o755; None: what the umask leaves of 0777.
            user: the user to make it as.
        """
        query = [*self._place(path, user), ("parents", _flag(parents))]
        if mode is not None:
            query.append(("mode", f"{bits('mode', mode, 0o7777):04o}"))
        return FileInfo.from_json(await self._call("POST", "directory", query, idempotent=parents))

    async def move(
        self,
        source: SandboxPath,
        target: SandboxPath,
        *,
        replace: bool = False,
        parents: bool = True,
        user: str | None = None,
    ) -> FileInfo:
        """Rename a path.

        Args:
            source: what is renamed; a symbolic link itself.
            target: its new path.
            replace: replace what is at the target; else that is a Conflict.
            parents: make missing directories above the target.
            user: the user to rename as.
        """
        return await self._two("file/move", source, target, replace=replace, parents=parents, user=user)

    async def copy(
        self,
        source: SandboxPath,
        target: SandboxPath,
        *,
        replace: bool = False,
        parents: bool = True,
        user: str | None = None,
    ) -> FileInfo:
        """Copy a file within the sandbox.

        Args:
            source: the file.
            target: the path of the copy.
            replace: replace what is at the target, a file as by `Files.write`; else that is a Conflict.
            parents: make missing directories above the target.
            user: the user to copy as.
        """
        return await self._two("file/copy", source, target, replace=replace, parents=parents, user=user)

    async def remove(
        self, path: SandboxPath, *, recursive: bool = False, missing_ok: bool = False, user: str | None = None
    ) -> int:
        """Remove a file, a link or a directory; returns how many were removed.

        Args:
            path: what is removed; a symbolic link itself.
            recursive: a directory with all in it.
            missing_ok: nothing at the path is no error.
            user: the user to remove as.
        """
        flags = [("recursive", _flag(recursive)), ("missing_ok", _flag(missing_ok))]
        body = await self._call("DELETE", "file", [*self._place(path, user), *flags], idempotent=missing_ok)
        return int(body["removed"])

    def watch(self, path: SandboxPath, *, recursive: bool = False, user: str | None = None) -> Reading[FileChange]:
        """Iterate over changes below a path, without end.

        The first item is `watching`: every later change is reported. After a broken connection come `overflowed`
        (changes may be lost) and `watching` again. Leave it with `contextlib.aclosing`, or by cancelling its task. A
        cancelled step loses nothing: `asyncio.timeout` around one limits the wait.
        """
        query = [*self._place(path, user), ("recursive", _flag(recursive))]

        async def changes() -> AsyncGenerator[FileChange, None]:
            resumption = Resumption(self._gateway.retries, _RESUME_BUDGET_S)
            while True:
                try:
                    async with self._gateway.exchange(self._access, "GET", "watch", query=query) as body:
                        async for change in _changes(body):
                            resumption.progress()
                            yield change
                except SandboxError as error:
                    await resumption.after(error)
                yield FileChange("overflowed")

        return Reading(changes())

    async def upload(
        self,
        local: str | os.PathLike[str],
        remote: SandboxPath,
        *,
        mode: int | None = None,
        owner: str | None = None,
        user: str | None = None,
        parents: bool = True,
        in_place: bool = False,
        progress: Progress | None = None,
    ) -> FileInfo:
        """Write a local file into the sandbox, in constant memory; retried when the connection breaks.

        It gets the time of the local file. The rest is as for `Files.write`.

        Args:
            local: the local file.
            remote: the path in the sandbox.
            mode: permissions like 0o755; None keeps those of the old file, or gives a new one those of the local file.
            owner: the file's owner as `user[:group]`; None keeps that of the old file, or is the user that writes.
            user: the user to write as.
            parents: make missing directories.
            in_place: as for `Files.write`.
            progress: called with the bytes sent so far.
        """
        path = Path(local)
        with transfer.opened(path) as file:
            status = os.fstat(file.fileno())
        kept = stat.S_IMODE(status.st_mode) & 0o777 if mode is None else bits("mode", mode, 0o7777)
        query = [*self._place(remote, user), ("parents", _flag(parents)), ("mode", f"{kept:04o}")]
        query += [("modified_at_ms", str(status.st_mtime_ns // 10**6)), *_in_place(in_place)]
        query += [] if mode is not None else [("keep_mode", _flag(True))]
        query += [("size", str(status.st_size)), *([] if owner is None else [("owner", owner)])]
        return await self._put_file(query, transfer.of_path(path), progress)

    async def download(
        self,
        remote: SandboxPath,
        local: str | os.PathLike[str],
        *,
        user: str | None = None,
        progress: Progress | None = None,
    ) -> FileInfo:
        """Write a file of the sandbox to a local one, in constant memory; its mode (no set-uid) and time are kept.

        A local file that is there has its old content until the new one is complete. It is replaced as a whole where a
        new file can stand for it, else written: through a link, under all its names, with its owner and attributes. A
        FIFO or a device is written while the data come, after a FIFO has found a reader. The rest is as for
        `Files.open_read`.

        Args:
            remote: the file in the sandbox.
            local: the local file; a directory gets a file of the same name.
            user: the user to read as.
            progress: called with the bytes received so far.

        Raises:
            InvalidArgument: nothing can be written there (a directory or a socket of this name, a link to nothing, a
                terminal), before anything happens; or this machine has trouble: `details["reason"]` is "local".
        """
        name = paths.decoded(paths.encoded("remote", remote)).rstrip("/").rpartition("/")[2] or "file"
        landing = await _landing(local, name)

        def written(data: bytes) -> None:
            with told(local):
                landing.write(data)

        behind, info, moved = transfer.WriteBehind(written), None, 0
        try:
            async for part, first in self._parts(remote, 0, None, user):
                info, moved = first, moved + len(part)
                await behind.put(part)
                if progress is not None:
                    progress(moved)
            await behind.finish()
            info = info or await self.stat(remote, user=user)
            with told(local):
                landing.commit(info.mode, info.modified_at_ms / 1000)
        finally:
            landing.stop()
            try:
                await behind.aclose()
            finally:
                landing.close()
        return info

    async def upload_dir(
        self,
        local: str | os.PathLike[str],
        remote: SandboxPath,
        *,
        user: str | None = None,
        parents: bool = True,
        in_place: bool = False,
        progress: Progress | None = None,
    ) -> TransferReport:
        """Copy the content of a local directory into one in the sandbox, as one tar stream made while it is sent.

        Modes, times, symbolic links and empty directories are kept; what is new belongs to the user that writes. Files
        and directories that are there keep owner, group, mode, access control list and attributes; files are written
        as by `Files.write`, but never through a link. Nothing in the sandbox is removed.

        Args:
            local: the local directory.
            remote: the directory in the sandbox; made when it is missing.
            user: the user to write as.
            parents: make missing directories above it.
            in_place: as for `Files.write`.
            progress: called with the bytes sent so far.

        Returns:
            how much was written, and what was skipped: sockets, FIFOs, devices, unreadable or changing files.
        Cancel safety: what was written so far stays.
        """
        root = directory(Path(local))
        query = [*self._place(remote, user), ("parents", _flag(parents)), *_in_place(in_place)]

        async def once() -> TransferReport:
            report = TransferReport()
            source = transfer.Hashed(lambda: transfer.in_thread(packed(os.fsencode(root), report)), progress)
            body = await self._put("archive", query, source.chunks)
            report.count, report.size_bytes = body["count"], body["size_bytes"]
            for name in body["skipped"]:
                report.skip(name, "left out by the sandbox")
            return report

        return await self._gateway.repeated(once)

    async def download_dir(
        self,
        remote: SandboxPath,
        local: str | os.PathLike[str],
        *,
        user: str | None = None,
        max_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> TransferReport:
        """Copy the content of a directory in the sandbox into a local one; nothing is written outside it.

        The sandbox is not trusted: absolute names, names with `..`, links that may lead outside and devices are skipped
        and reported, and so is an entry in whose place something of another kind is here, which stays. Set-uid bits are
        dropped. Existing files are written as by `download`, but never through a link.

        Args:
            remote: the directory in the sandbox.
            local: the local directory; made when it is missing.
            user: the user to read as.
            max_bytes: PayloadTooLarge when the files have more data; None: no limit but the local disk.
            progress: called with the bytes received so far.

        Raises:
            InvalidArgument: the local directory cannot be made; or this machine has trouble, like a full disk:
                `details["reason"]` is "local".
        Cancel safety: what was written so far stays; of a file whose data have not all come, nothing.
        """
        query, root = self._place(remote, user), folder(local)

        async def once() -> TransferReport:
            report = TransferReport()
            async with self._gateway.exchange(
                self._access, "GET", "archive", query=query, headers=frames.ACCEPT
            ) as body:
                await _unpacked(frames.Checked(body), root, report, max_bytes, progress)
            return report

        return await self._gateway.repeated(once)

    async def _parts(
        self, path: SandboxPath, offset: int, length: int | None, user: str | None
    ) -> AsyncIterator[tuple[bytes, FileInfo | None]]:
        """Iterate over the data of a file with its first FileInfo; a broken connection is resumed at the offset."""
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise InvalidArgument(f"offset {offset!r} is not a whole number of bytes")
        left = None if length is None else count("length", length)
        first: FileInfo | None = None
        resumption = Resumption(self._gateway.retries, _RESUME_BUDGET_S)
        while left is None or left > 0:
            rest = [] if left is None else [("length", str(left))]
            query = [*self._place(path, user), ("offset", str(offset)), *rest]
            try:
                async with self._gateway.exchange(
                    self._access, "GET", "file", query=query, headers=frames.ACCEPT
                ) as body:
                    checked = frames.Checked(body)
                    async for part in checked.chunks():
                        first = _same(first, checked.info)
                        offset += len(part)
                        left = None if left is None else left - len(part)
                        resumption.progress()
                        yield part, first
            except SandboxError as error:
                await resumption.after(error)
            else:
                return

    async def _put_file(
        self, query: _Pairs, source: Source | bytes, progress: Progress | None = None, digest: str | None = None
    ) -> FileInfo:
        hashed = transfer.Hashed(source, progress, digest) if callable(source) else None

        async def once() -> FileInfo:
            info = FileInfo.from_json(await self._put("file", query, source if hashed is None else hashed.chunks))
            sent = digest if hashed is None else hashed.sha256
            if info.sha256 is not None and info.sha256 != sent:
                raise StreamInterrupted(f"{info.path} has digest {info.sha256}, what was sent has {sent}")
            return info

        return await self._gateway.repeated(once)

    async def _put(self, route: str, query: _Pairs, source: Source | bytes) -> Any:  # noqa: ANN401
        async with self._gateway.exchange(self._access, "PUT", route, query=query, source=source) as body:
            return await body.json()

    async def _two(
        self, route: str, source: SandboxPath, target: SandboxPath, *, replace: bool, parents: bool, user: str | None
    ) -> FileInfo:
        query: _Pairs = [
            ("from", paths.encoded("source", source)),
            ("to", paths.encoded("target", target)),
            ("replace", _flag(replace)),
            ("parents", _flag(parents)),
            *_user(user),
        ]
        return FileInfo.from_json(await self._call("POST", route, query, idempotent=False))

    async def _call(self, method: str, route: str, query: _Pairs, *, idempotent: bool = True) -> Any:  # noqa: ANN401
        return await self._gateway.call_sandbox(
            self._access, method, *route.split("/"), query=query, idempotent=idempotent
        )

    def _place(self, path: SandboxPath, user: str | None) -> _Pairs:
        return [("path", paths.encoded("path", path)), *_user(user)]


async def _changes(body: Body) -> AsyncIterator[FileChange]:
    while True:
        try:
            async with asyncio.timeout(_WATCH_SILENCE_S):
                line = await body.line()
        except TimeoutError:
            raise StreamInterrupted(f"the watch was silent for {_WATCH_SILENCE_S:g} s") from None
        if not line:
            raise StreamInterrupted("the watch broke off")
        if line.strip():
            told = json.loads(line)
            if "problem" in told:
                raise error_from_problem(told["problem"], {})
            yield FileChange.from_json(told)


async def _landing(local: str | os.PathLike[str], name: str) -> Landing:
    while True:
        try:
            return beside(local, name)
        except NoReader:
            await asyncio.sleep(_READER_S)


async def _unpacked(
    archive: frames.Checked, local: Path, report: TransferReport, max_bytes: int | None, progress: Progress | None
) -> None:
    unpacker = Unpacker(local, report, max_bytes)
    behind = transfer.WriteBehind(unpacker.feed)
    try:
        async for part in archive.chunks():
            await behind.put(part)
            if progress is not None:
                progress(archive.size_bytes)
        await behind.finish()
        unpacker.finish()
    finally:
        try:
            await behind.aclose()
        finally:
            unpacker.close()


def _same(first: FileInfo | None, now: FileInfo | None) -> FileInfo | None:
    if first is None or now is None:
        return first or now
    if (first.size_bytes, first.modified_at_ms) != (now.size_bytes, now.modified_at_ms):
        raise Conflict(f"{first.path} changed while it was read, and the connection broke", hint="Read it again.")
    return first


def _user(user: str | None) -> _Pairs:
    return [] if user is None else [("user", user)]


def _in_place(wanted: bool) -> _Pairs:
    return [("in_place", _flag(True))] if wanted else []


def _flag(value: bool) -> str:
    return "true" if value else "false"
