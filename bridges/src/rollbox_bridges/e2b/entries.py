"""Files as E2B's messages describe them. Pure."""

from __future__ import annotations

import stat
from typing import Any, Final

from rollbox import FileChange, FileInfo
from rollbox_bridges.e2b.messages import FILESYSTEM

_TYPES: Final = {"file": "FILE_TYPE_FILE", "directory": "FILE_TYPE_DIRECTORY"}
_FORMATS: Final = {"file": stat.S_IFREG, "directory": stat.S_IFDIR}
_EVENTS: Final = {
    "created": "EVENT_TYPE_CREATE",
    "written": "EVENT_TYPE_WRITE",
    "removed": "EVENT_TYPE_REMOVE",
    "attributes": "EVENT_TYPE_CHMOD",
}


def entry(info: FileInfo, owner: str, group: str, target: FileInfo | None = None) -> Any:  # noqa: ANN401 - a message
    """One file.

    Args:
        info: of it; of a symbolic link, not of what it leads to.
        owner: name of its user.
        group: name of its group.
        target: what a symbolic link leads to, whose kind it has; None: to nothing.
    """
    kind = target.kind if info.kind == "symlink" and target is not None else info.kind
    link = {} if info.link_target is None else {"symlink_target": info.link_target}
    made = FILESYSTEM["EntryInfo"](
        name=info.path.rstrip("/").rpartition("/")[2],
        type=_TYPES.get(kind, "FILE_TYPE_UNSPECIFIED"),
        path=info.path,
        size=info.size_bytes,
        mode=info.mode & 0o7777,
        permissions=stat.filemode(_FORMATS.get(info.kind, stat.S_IFLNK) | info.mode),
        owner=owner,
        group=group,
        is_symlink=info.kind == "symlink",
        **link,
    )
    made.modified_time.FromMilliseconds(info.modified_at_ms)
    return made


def within(entries: list[FileInfo], top: str, depth: int) -> list[FileInfo]:
    """Those that are at most so many levels below a directory."""
    levels = top.rstrip("/").count("/") + depth
    return [one for one in entries if one.path.count("/") <= levels]


def changes(change: FileChange, top: str) -> list[Any]:
    """A change as E2B has it, by names below the watched directory; a move ends one and begins another."""
    if change.change == "moved":
        old = [] if change.origin is None else [_change(change.origin, top, "EVENT_TYPE_RENAME")]
        return [*old, _change(change.path, top, "EVENT_TYPE_CREATE")]
    kind = _EVENTS.get(change.change)
    return [] if kind is None else [_change(change.path, top, kind)]


def _change(path: str, top: str, kind: str) -> Any:  # noqa: ANN401 - a message
    return FILESYSTEM["Change"](name=path.removeprefix(top.rstrip("/") + "/"), type=kind)
