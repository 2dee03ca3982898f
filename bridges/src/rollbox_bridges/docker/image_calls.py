"""Calls on images."""

from __future__ import annotations

import json
from typing import Any, Final

from aiohttp import web

from rollbox_bridges.docker import pictured
from rollbox_bridges.docker.asking import Query, json_body
from rollbox_bridges.docker.engine import Engine
from rollbox_bridges.docker.fields import is_zero
from rollbox_bridges.docker.references import check_platform, joined, repository_of, tag_of
from rollbox_bridges.docker.words import Refusal, not_honoured, not_implemented

_UNSAID: Final = frozenset({"comment", "author", "pause"})


async def list_(request: web.BaseRequest, engine: Engine) -> web.StreamResponse:
    """List those that were named here, and those on the platform's machines."""
    query = Query(request, frozenset({"filters", "all"}), harmless=frozenset({"digests", "shared-size"}))
    wanted = query.filters(frozenset({"reference"})).get("reference", [])
    return web.json_response(pictured.rows(await engine.images.listed(wanted)))


async def inspect(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """Tell of one."""
    Query(request, frozenset())
    image = await engine.images.get(name)
    config = await engine.images.told(image.source)
    return web.json_response(pictured.body(image, engine.images.tags(image), config))


async def pull(request: web.BaseRequest, engine: Engine) -> web.StreamResponse:
    """Have an image on one of the platform's machines; the answer comes when it is there."""
    query = Query(request, frozenset({"fromImage", "tag", "platform", "fromSrc"}))
    if query.text("fromSrc"):
        raise not_implemented("importing an image", "Push it to a registry.")
    check_platform(query.text("platform"))
    name = query.text("fromImage")
    if not name:
        raise Refusal(400, "fromImage is empty")
    image = await engine.images.pull(joined(name, query.text("tag")))
    repository, tag = repository_of(image.name)
    return _lines(
        {"status": f"Pulling from {repository}", "id": tag},
        {"status": f"Status: {image.name} is there"},
    )


async def tag(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """Give an image another name, for the clients of this bridge."""
    query = Query(request, frozenset({"repo", "tag"}))
    if not query.text("repo"):
        raise Refusal(400, "repo is empty")
    image = await engine.images.get(name)
    engine.images.keep(tag_of(joined(query.text("repo"), query.text("tag"))), image.source, image.digest)
    return web.Response(status=201)


async def remove(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """Remove an image that was made of a container; of others the name is forgotten here."""
    query = Query(request, frozenset({"force"}), harmless=frozenset({"noprune"}))
    return web.json_response(await engine.images.remove(name, force=query.flag("force")))


async def commit(request: web.BaseRequest, engine: Engine) -> web.StreamResponse:
    """Make an image of a container's files."""
    query = Query(request, frozenset({"container", "repo", "tag"}), harmless=_UNSAID)
    body: Any = await json_body(request)
    if isinstance(body, dict) and any(not is_zero(value) for value in body.values()):
        raise not_honoured("a configuration in a commit", "an image has the configuration of the one it is made on")
    container = engine.containers.get(query.text("container"))
    name = joined(query.text("repo"), query.text("tag")) if query.text("repo") else ""
    return web.json_response({"Id": (await engine.images.commit(container.sandbox, name)).id}, status=201)


def _lines(*told: dict[str, str]) -> web.Response:
    body = "".join(f"{json.dumps(one)}\r\n" for one in told)
    return web.Response(text=body, content_type="application/json")
