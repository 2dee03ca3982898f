"""Calls on containers."""

from __future__ import annotations

import json
from typing import Final

from aiohttp import web

from rollbox import SandboxError
from rollbox_bridges.docker import described
from rollbox_bridges.docker.asking import Query, json_body
from rollbox_bridges.docker.container import Container, Made
from rollbox_bridges.docker.creating import settled, signal_of, wish_of, without
from rollbox_bridges.docker.engine import Engine
from rollbox_bridges.docker.references import check_platform, image_id, is_id
from rollbox_bridges.docker.words import Refusal

_FILTERS: Final = frozenset({"name", "id", "label", "status"})
_KILL: Final = 9
_ENDLESS: Final = -1
_CONDITIONS: Final = ("not-running", "next-exit", "removed")


async def create(request: web.BaseRequest, engine: Engine) -> web.StreamResponse:
    """Create a container: its sandbox runs from now on, its main process from its start on."""
    query = Query(request, frozenset({"name", "platform"}))
    check_platform(query.text("platform"))
    body = await json_body(request)
    warnings = without(body, engine.settings.left_out)
    wish = wish_of(body)
    source = engine.images.source(wish.image)
    config = await engine.images.config(source)
    if config is None:
        warnings.append("the platform does not tell the image's ENTRYPOINT, which is not run")
    made_of = Made(wish, settled(wish, config), (config and config.digest) or image_id(source))
    container = await engine.containers.create(made_of, source, query.text("name"))
    if not is_id(wish.image):
        engine.images.keep(wish.image, source, config.digest if config else "")
    return web.json_response({"Id": container.id, "Warnings": warnings}, status=201)


async def list_(request: web.BaseRequest, engine: Engine) -> web.StreamResponse:
    """List containers."""
    query = Query(request, frozenset({"all", "limit", "filters"}))
    limit = query.whole("limit", -1, least=-1)
    every = query.flag("all") or limit > 0
    found = engine.containers.listed(ended=every, filters=query.filters(_FILTERS))
    return web.json_response([described.row(one) for one in (found[:limit] if limit > 0 else found)])


async def inspect(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """Tell all of one; whether the sandbox of one that does not run is still there is asked."""
    Query(request, frozenset())
    container = engine.containers.get(name)
    await _looked_at(container)
    return web.json_response(described.container(container))


async def start(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """Start the main process."""
    Query(request, frozenset())
    return web.Response(status=204 if await engine.containers.get(name).start() else 304)


async def stop(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """End the main process."""
    return web.Response(status=204 if await _stopped(request, engine.containers.get(name)) else 304)


async def restart(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """End the main process, and start it again."""
    container = engine.containers.get(name)
    await _stopped(request, container)
    await container.start()
    return web.Response(status=204)


async def kill(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """Send a signal to the main process."""
    query = Query(request, frozenset({"signal"}))
    await engine.containers.get(name).signal(signal_of(query.text("signal"), _KILL))
    return web.Response(status=204)


async def wait(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """Tell the end of the main process. The head of the answer comes at once: clients start it after that."""
    condition = Query(request, frozenset({"condition"})).text("condition") or _CONDITIONS[0]
    if condition not in _CONDITIONS:
        raise Refusal(400, f"invalid condition: {condition[:40]}, it is one of {', '.join(_CONDITIONS)}")
    container = engine.containers.get(name)
    waited = {"next-exit": container.next_exit, "removed": container.removed}.get(condition, container.exited)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    end = await waited()
    error = {"Message": container.error} if container.state == "dead" else None
    await response.write(json.dumps({"StatusCode": end.code, "Error": error}).encode() + b"\n")
    await response.write_eof()
    return response


async def resize(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """Set the size of the main process's terminal."""
    query = Query(request, frozenset({"h", "w"}))
    main = engine.containers.get(name).main
    await main.resize(query.whole("w", 80, least=1), query.whole("h", 24, least=1))
    return web.Response()


async def rename(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """Give a container another name."""
    engine.containers.rename(engine.containers.get(name), Query(request, frozenset({"name"})).text("name"))
    return web.Response(status=204)


async def remove(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """End the sandbox of a container, which has no volumes and no links that could stay."""
    query = Query(request, frozenset({"force"}), harmless=frozenset({"v"}))
    await engine.containers.remove(engine.containers.get(name), force=query.flag("force"))
    return web.Response(status=204)


async def prune(request: web.BaseRequest, engine: Engine) -> web.StreamResponse:
    """Remove all containers that do not run."""
    Query(request, frozenset({"filters"})).filters(frozenset())
    return web.json_response({"ContainersDeleted": await engine.containers.prune(), "SpaceReclaimed": 0})


async def _stopped(request: web.BaseRequest, container: Container) -> bool:
    query = Query(request, frozenset({"t", "signal"}))
    within_s = query.whole("t", container.wish.stop_s, least=_ENDLESS)
    number = signal_of(query.text("signal"), container.settled.stop_signal)
    return await container.stop(number, None if within_s == _ENDLESS else within_s)


async def _looked_at(container: Container) -> None:
    if container.state not in {"created", "exited"}:
        return
    try:
        record = await container.sandbox.refresh()
        if record.end is not None:
            await container.ended(record.end)
    except SandboxError as error:
        await container.lost(error)
