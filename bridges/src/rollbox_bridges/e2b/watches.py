"""Watches of directories: as a stream, and as watchers that clients ask again and again."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from aiohttp import web

from rollbox import Files, SandboxError
from rollbox_bridges.connect import serving
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.e2b import entries
from rollbox_bridges.e2b.messages import FILESYSTEM
from rollbox_bridges.e2b.sessions import Session
from rollbox_bridges.e2b.users import user_of
from rollbox_bridges.e2b.watchers import LOST, Watcher
from rollbox_bridges.e2b.words import in_stream
from rollbox_bridges.processes.alive import keeping_alive

_M: Final = FILESYSTEM


async def watch_dir(request: web.Request, session: Session) -> web.StreamResponse:
    """Stream the changes below a directory."""
    shape, asked = await serving.asked(request, _M["WatchDirRequest"], streams=True)
    files, user = session.sandbox.files, user_of(request)
    top = await _directory(files, asked.path, user)
    answers = serving.Answers(request, shape)

    async def alive() -> None:
        await answers.send(_M["WatchDirResponse"](keepalive=_M["KeepAlive"]()))

    try:
        async with (
            keeping_alive(request, alive),
            serving.within(request),
            aclosing(files.watch(top, recursive=asked.recursive, user=user)) as changes,
        ):
            async for change in changes:
                if change.change == "watching":
                    await answers.send(_M["WatchDirResponse"](start=_M["Watching"]()))
                elif change.change == "overflowed":
                    raise ConnectError("data_loss", LOST)
                for one in entries.changes(change, top):
                    await answers.send(_M["WatchDirResponse"](filesystem=one))
    except ConnectError as error:
        await answers.end(error)
    except SandboxError as error:
        if not answers.begun:
            raise
        await answers.end(in_stream(error, session.sandbox.id))
    return answers.response


async def create(request: web.Request, session: Session) -> web.StreamResponse:
    """Begin to gather changes."""
    shape, asked = await serving.asked(request, _M["CreateWatcherRequest"], streams=False)
    files, user = session.sandbox.files, user_of(request)
    watcher = Watcher(files, await _directory(files, asked.path, user), recursive=asked.recursive, user=user)
    try:
        await watcher.watching()
    except BaseException:
        await watcher.aclose()
        raise
    return serving.answer(shape, _M["CreateWatcherResponse"](watcher_id=await session.watchers.add(watcher)))


async def events(request: web.Request, session: Session) -> web.StreamResponse:
    """Give what was gathered."""
    shape, asked = await serving.asked(request, _M["GetWatcherEventsRequest"], streams=False)
    came = session.watchers.find(asked.watcher_id).take()
    return serving.answer(shape, _M["GetWatcherEventsResponse"](events=came))


async def remove(request: web.Request, session: Session) -> web.StreamResponse:
    """Gather no more."""
    shape, asked = await serving.asked(request, _M["RemoveWatcherRequest"], streams=False)
    await session.watchers.remove(asked.watcher_id)
    return serving.answer(shape, _M["RemoveWatcherResponse"]())


async def _directory(files: Files, path: str, user: str | None) -> str:
    info = await files.stat(path, user=user)
    if info.kind != "directory":
        raise ConnectError("invalid_argument", f"{path} is no directory")
    return info.path
