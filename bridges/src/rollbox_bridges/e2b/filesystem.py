"""`filesystem.Filesystem`: directories, and what there is of a file besides its content."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from rollbox import FileInfo, errors
from rollbox_bridges.connect import serving
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.e2b import entries, watches
from rollbox_bridges.e2b.messages import FILESYSTEM
from rollbox_bridges.e2b.sessions import Session
from rollbox_bridges.e2b.users import user_of

_M: Final = FILESYSTEM
_MOST_ENTRIES: Final = 100_000


async def stat(request: web.Request, session: Session) -> web.StreamResponse:
    """Tell what is at a path."""
    shape, asked = await serving.asked(request, _M["StatRequest"], streams=False)
    info = await session.sandbox.files.stat(asked.path, follow=False, user=user_of(request))
    return serving.answer(shape, _M["StatResponse"](entry=await _entry(session, info, user_of(request))))


async def make_dir(request: web.Request, session: Session) -> web.StreamResponse:
    """Make a directory, with those above it."""
    shape, asked = await serving.asked(request, _M["MakeDirRequest"], streams=False)
    files, user = session.sandbox.files, user_of(request)
    # To make one that is there is no error to rollbox, and one to these clients.
    if await files.exists(asked.path, user=user):
        raise ConnectError("already_exists", f"{asked.path} is there already")
    info = await files.mkdir(asked.path, user=user)
    return serving.answer(shape, _M["MakeDirResponse"](entry=await _entry(session, info, user)))


async def move(request: web.Request, session: Session) -> web.StreamResponse:
    """Rename, in the place of what is there."""
    shape, asked = await serving.asked(request, _M["MoveRequest"], streams=False)
    user = user_of(request)
    info = await session.sandbox.files.move(asked.source, asked.destination, replace=True, user=user)
    return serving.answer(shape, _M["MoveResponse"](entry=await _entry(session, info, user)))


async def list_dir(request: web.Request, session: Session) -> web.StreamResponse:
    """List a directory, some levels deep."""
    shape, asked = await serving.asked(request, _M["ListDirRequest"], streams=False)
    files, user, depth = session.sandbox.files, user_of(request), max(1, asked.depth)
    found = await files.list(asked.path, recursive=depth > 1, limit=_MOST_ENTRIES, user=user)
    if found.truncated:
        raise ConnectError("out_of_range", f"there are more than {_MOST_ENTRIES} entries: list fewer levels")
    top = (await files.stat(asked.path, user=user)).path if depth > 1 else ""
    shown = entries.within(found, top, depth) if depth > 1 else found
    told = [await _entry(session, one, user) for one in shown]
    return serving.answer(shape, _M["ListDirResponse"](entries=told))


async def remove(request: web.Request, session: Session) -> web.StreamResponse:
    """Remove a file, or a directory with all in it; what is not there is no error."""
    shape, asked = await serving.asked(request, _M["RemoveRequest"], streams=False)
    await session.sandbox.files.remove(asked.path, recursive=True, missing_ok=True, user=user_of(request))
    return serving.answer(shape, _M["RemoveResponse"]())


async def _entry(session: Session, info: FileInfo, user: str | None) -> Any:  # noqa: ANN401 - a message
    info = await session.shown(info)
    owner, group = await session.names.user(info.uid), await session.names.group(info.gid)
    target = await _target(session, info, user) if info.kind == "symlink" else None
    return entries.entry(info, owner, group, target)


async def _target(session: Session, info: FileInfo, user: str | None) -> FileInfo | None:
    try:
        return await session.sandbox.files.stat(info.path, user=user)
    except (errors.FileNotFound, errors.PermissionDenied, errors.InvalidArgument):
        return None


CALLS: Final[dict[str, tuple[Callable[[web.Request, Session], Awaitable[web.StreamResponse]], bool]]] = {
    "Stat": (stat, False),
    "MakeDir": (make_dir, False),
    "Move": (move, False),
    "ListDir": (list_dir, False),
    "Remove": (remove, False),
    "WatchDir": (watches.watch_dir, True),
    "CreateWatcher": (watches.create, False),
    "GetWatcherEvents": (watches.events, False),
    "RemoveWatcher": (watches.remove, False),
}
"""Name -> what serves it, and whether its answer is a stream."""
