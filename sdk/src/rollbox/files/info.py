"""Information about files, changes and transfers. Pure: JSON in, dataclasses out."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rollbox.files import paths

FileKind = Literal["file", "directory", "symlink", "other"]
Change = Literal["watching", "created", "written", "removed", "moved", "attributes", "overflowed"]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file, directory, symbolic link or other thing in a sandbox.

    Attributes:
        path: its path; bytes that are not UTF-8 are surrogate escapes, and work when passed back.
        kind: file, directory, symlink or other (device, FIFO, socket).
        size_bytes, mode, uid, gid, modified_at_ms: from the kernel; mode without the file type, time in Unix ms.
        link_target: of a symlink.
        sha256: hexadecimal, in the answer to a write; else None.
    """

    path: str
    kind: FileKind
    size_bytes: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    modified_at_ms: int = 0
    link_target: str | None = None
    sha256: str | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FileInfo:
        """Read the wire form; fields that this version does not know are left out."""
        numbers = {name: body.get(name) or 0 for name in ("size_bytes", "mode", "uid", "gid", "modified_at_ms")}
        return cls(
            path=paths.path_of(body, "path") or "",
            kind=body["kind"],
            link_target=paths.path_of(body, "link_target"),
            sha256=body.get("sha256") or None,
            **numbers,
        )

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json`: a name that is not UTF-8 is `path_base64`."""
        body = {**_written("path", self.path), **_written("link_target", self.link_target)}
        for name in ("kind", "size_bytes", "mode", "uid", "gid", "modified_at_ms", "sha256"):
            body[name] = getattr(self, name)
        return body


class Listing(list[FileInfo]):
    """The entries of a directory.

    Attributes:
        truncated: whether there are more than the limit that was asked for.
    """

    def __init__(self, entries: list[FileInfo], *, truncated: bool) -> None:
        super().__init__(entries)
        self.truncated = truncated


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change below a watched path.

    Attributes:
        change: watching (the first one: every later change is reported), created, written, removed, moved, attributes,
            or overflowed: changes were lost (too many, or the connection broke), so list the directory again.
        path: of the changed file.
        origin: its path before, when it moved.
    """

    change: Change
    path: str = ""
    origin: str | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FileChange:
        """Read the wire form."""
        return cls(body["change"], paths.path_of(body, "path") or "", paths.path_of(body, "from"))

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json`: a name that is not UTF-8 is `path_base64`."""
        return {"change": self.change, **_written("path", self.path), **_written("from", self.origin)}


@dataclass(slots=True)
class TransferReport:
    """What a transfer of a file or a directory did.

    Attributes:
        count: files, directories and links that were made.
        size_bytes: of their data.
        skipped: path -> why it was skipped: sockets, FIFOs, devices, links that lead outside; the first 100 only.
        skipped_count: how many were skipped in all.
    """

    count: int = 0
    size_bytes: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    skipped_count: int = 0

    def skip(self, path: str, reason: str) -> None:
        """Record a skipped path."""
        self.skipped_count += 1
        if len(self.skipped) < _MOST_NAMED:
            self.skipped[path] = reason

    def to_json(self) -> dict[str, Any]:
        """Write it for `--json`; names that are not UTF-8 are shown with replacement characters."""
        skipped = {paths.shown(path): reason for path, reason in self.skipped.items()}
        return {
            "count": self.count,
            "size_bytes": self.size_bytes,
            "skipped": skipped,
            "skipped_count": self.skipped_count,
        }


def _written(name: str, value: str | None) -> dict[str, Any]:
    try:
        return {name: value if value is None else value.encode().decode()}
    except UnicodeEncodeError:
        return {f"{name}_base64": b64encode(paths.encoded(name, value or "")).decode("ascii")}


_MOST_NAMED = 100
