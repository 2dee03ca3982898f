"""Files without `await`."""

from __future__ import annotations

import os

from rollbox import files as awaited
from rollbox.files import FileChange, FileInfo, Listing, TransferReport
from rollbox.files.paths import SandboxPath
from rollbox.files.transfer import Progress
from rollbox.request import Readable
from rollbox.sync.loop_thread import Iteration, run


class Files:
    """As `rollbox.Files`."""

    def __init__(self, inner: awaited.Files) -> None:
        """Use `sandbox.files` instead."""
        self.inner = inner

    def read(self, path: SandboxPath, *, offset: int = 0, length: int | None = None, user: str | None = None) -> bytes:
        """As `rollbox.Files.read`."""
        return run(self.inner.read(path, offset=offset, length=length, user=user))

    def read_text(self, path: SandboxPath, *, encoding: str = "utf-8", user: str | None = None) -> str:
        """As `rollbox.Files.read_text`."""
        return run(self.inner.read_text(path, encoding=encoding, user=user))

    def open_read(
        self, path: SandboxPath, *, offset: int = 0, length: int | None = None, user: str | None = None
    ) -> Iteration[bytes]:
        """As `rollbox.Files.open_read`: an iterator of bytes."""
        return Iteration(self.inner.open_read(path, offset=offset, length=length, user=user))

    def write(
        self,
        path: SandboxPath,
        data: bytes | str | Readable,
        *,
        mode: int | None = None,
        owner: str | None = None,
        user: str | None = None,
        parents: bool = True,
        in_place: bool = False,
    ) -> FileInfo:
        """As `rollbox.Files.write`."""
        writing = self.inner.write(path, data, mode=mode, owner=owner, user=user, parents=parents, in_place=in_place)
        return run(writing)

    def stat(self, path: SandboxPath, *, follow: bool = True, user: str | None = None) -> FileInfo:
        """As `rollbox.Files.stat`."""
        return run(self.inner.stat(path, follow=follow, user=user))

    def exists(self, path: SandboxPath, *, follow: bool = True, user: str | None = None) -> bool:
        """As `rollbox.Files.exists`."""
        return run(self.inner.exists(path, follow=follow, user=user))

    def list(
        self, path: SandboxPath, *, recursive: bool = False, limit: int = 10_000, user: str | None = None
    ) -> Listing:
        """As `rollbox.Files.list`."""
        return run(self.inner.list(path, recursive=recursive, limit=limit, user=user))

    def mkdir(
        self, path: SandboxPath, *, parents: bool = True, mode: int | None = None, user: str | None = None
    ) -> FileInfo:
        """As `rollbox.Files.mkdir`."""
        return run(self.inner.mkdir(path, parents=parents, mode=mode, user=user))

    def move(
        self,
        source: SandboxPath,
        target: SandboxPath,
        *,
        replace: bool = False,
        parents: bool = True,
        user: str | None = None,
    ) -> FileInfo:
        """As `rollbox.Files.move`."""
        return run(self.inner.move(source, target, replace=replace, parents=parents, user=user))

    def copy(
        self,
        source: SandboxPath,
        target: SandboxPath,
        *,
        replace: bool = False,
        parents: bool = True,
        user: str | None = None,
    ) -> FileInfo:
        """As `rollbox.Files.copy`."""
        return run(self.inner.copy(source, target, replace=replace, parents=parents, user=user))

    def remove(
        self, path: SandboxPath, *, recursive: bool = False, missing_ok: bool = False, user: str | None = None
    ) -> int:
        """As `rollbox.Files.remove`."""
        return run(self.inner.remove(path, recursive=recursive, missing_ok=missing_ok, user=user))

    def watch(self, path: SandboxPath, *, recursive: bool = False, user: str | None = None) -> Iteration[FileChange]:
        """As `rollbox.Files.watch`: an iterator."""
        return Iteration(self.inner.watch(path, recursive=recursive, user=user))

    def upload(
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
        """As `rollbox.Files.upload`; `progress` is called in the background thread."""
        uploading = self.inner.upload(
            local,
            remote,
            mode=mode,
            owner=owner,
            user=user,
            parents=parents,
            in_place=in_place,
            progress=progress,
        )
        return run(uploading)

    def download(
        self,
        remote: SandboxPath,
        local: str | os.PathLike[str],
        *,
        user: str | None = None,
        progress: Progress | None = None,
    ) -> FileInfo:
        """As `rollbox.Files.download`; `progress` is called in the background thread."""
        return run(self.inner.download(remote, local, user=user, progress=progress))

    def upload_dir(
        self,
        local: str | os.PathLike[str],
        remote: SandboxPath,
        *,
        user: str | None = None,
        parents: bool = True,
        in_place: bool = False,
        progress: Progress | None = None,
    ) -> TransferReport:
        """As `rollbox.Files.upload_dir`; `progress` is called in the background thread."""
        uploading = self.inner.upload_dir(
            local, remote, user=user, parents=parents, in_place=in_place, progress=progress
        )
        return run(uploading)

    def download_dir(
        self,
        remote: SandboxPath,
        local: str | os.PathLike[str],
        *,
        user: str | None = None,
        max_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> TransferReport:
        """As `rollbox.Files.download_dir`; `progress` is called in the background thread."""
        return run(self.inner.download_dir(remote, local, user=user, max_bytes=max_bytes, progress=progress))
