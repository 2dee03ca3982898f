"""The routes of templates: builds, their files and their progress, names, tags and lists."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from aiohttp import web

from rollbox import Client, Commit
from rollbox_bridges.credentials import Credentials
from rollbox_bridges.e2b import jsonbody, names, recipes, snapshots
from rollbox_bridges.e2b.builds import Builds
from rollbox_bridges.e2b.settings import ENVD_VERSION, Settings
from rollbox_bridges.e2b.uploads import Uploads
from rollbox_bridges.e2b.words import Refusal, unsupported
from rollbox_bridges.removals import removed

_MOST_BODY: Final = 2**22
_PURPOSE: Final = "upload"
# What older clients send by themselves; sandboxes have what the installation gives.
_NOTHING: Final[Mapping[str, tuple[Any, ...]]] = {
    "cpuCount": (None, 2),
    "memoryMB": (None, 1024),
    "minFreeDiskMB": (None, 0),
    "teamID": (None,),
}


class Call(NamedTuple):
    """A request, of whom it is, and the client of that owner."""

    request: web.Request
    key: str
    client: Client


class Templates:
    """The templates of all owners.

    Args:
        settings: of the bridge.
        credentials: seal the addresses of uploads.
    """

    def __init__(self, settings: Settings, credentials: Credentials) -> None:
        self._credentials = credentials
        self._uploads = Uploads()
        self._builds = Builds(settings, self._uploads)
        self._routes: dict[tuple[str, ...], Callable[..., Awaitable[web.StreamResponse]]] = {
            ("POST",): self._request,
            ("GET",): _list,
            ("GET", "aliases", "*"): _exists,
            ("POST", "tags"): _assign,
            ("DELETE", "tags"): _unassign,
            ("GET", "*", "tags"): _tags,
            ("GET", "*", "files", "*"): self._upload_link,
            ("POST", "*", "builds", "*"): self._start,
            ("GET", "*", "builds", "*", "status"): self._status,
            ("DELETE", "*"): _remove,
        }

    async def serve(self, call: Call, parts: Sequence[str]) -> web.StreamResponse | None:
        """Serve a request below `templates`; None: there is no such route.

        Args:
            call: the request.
            parts: of its path, after `templates`.

        Raises:
            Refusal: it is refused.
            SandboxError: as the calls of the platform.
        """
        for (method, *wanted), serve in self._routes.items():
            if method != call.request.method or len(wanted) != len(parts):
                continue
            if all(one in {"*", part} for one, part in zip(wanted, parts, strict=True)):
                return await serve(call, *(part for one, part in zip(wanted, parts, strict=True) if one == "*"))
        if call.request.method == "DELETE" and parts:
            # The name of an image has slashes of its own.
            return await snapshots.remove(call.client, "/".join(parts))
        return None

    async def upload(self, request: web.Request, files: str) -> web.StreamResponse:
        """Take the files of a step, at the address that an owner was given for them.

        Raises:
            Refusal: the address is not sound, or they are too long.
        """
        key = self._credentials.opened(_PURPOSE, files, request.query.get("credential", ""))
        if key is None:
            raise Refusal(401, "the address of this upload is none that was given", "unauthenticated")
        await self._uploads.keep(request, key, files)
        return web.Response(status=200)

    async def _request(self, call: Call) -> web.StreamResponse:
        body = await jsonbody.read(call.request, {"name", "alias", "tags", *_NOTHING})
        for field, taken in _NOTHING.items():
            if body.get(field) not in taken:
                raise unsupported(
                    f"{field} = {body[field]!r} of a template", "Leave it out, or have a pool of that size."
                )
        name, tag = names.parts(body.get("name") or body.get("alias"))
        own = [] if tag == names.DEFAULT_TAG else [tag]
        tags = [*dict.fromkeys([*own, *names.tags_of(body.get("tags") or [])])] or [tag]
        build = self._builds.request(call.key, name, tags)
        told = {"templateID": name, "buildID": build.id, "public": False, "names": [name], "tags": tags}
        return web.json_response({**told, "aliases": [name]}, status=202)

    async def _upload_link(self, call: Call, name: str, files: str) -> web.StreamResponse:
        request, key = call.request, call.key
        names.parts(name)
        if not recipes.is_hash(files):
            raise Refusal(400, f"{files[:70]!r} is not a SHA-256 in lower-case hexadecimal digits")
        credential = self._credentials.sealed(_PURPOSE, files, key)
        url = f"{request.scheme}://{request.host}/templates/uploads/{files}?credential={credential}"
        return web.json_response({"present": self._uploads.has(key, files), "url": url}, status=201)

    async def _start(self, call: Call, name: str, build_id: str) -> web.StreamResponse:
        build = self._builds.known(call.key, name, build_id)
        recipe = recipes.recipe_of(await jsonbody.read(call.request, most_bytes=_MOST_BODY), build.id)
        self._builds.start(build, call.client, recipe)
        return web.Response(status=202)

    async def _status(self, call: Call, name: str, build_id: str) -> web.StreamResponse:
        text = call.request.query.get("logsOffset", "0")
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise Refusal(400, f"logsOffset {text[:20]!r} is not a number from 0 on")
        return web.json_response(self._builds.known(call.key, name, build_id).told(int(text)))

    async def aclose(self) -> None:
        """End builds that are under way, and remove what was uploaded."""
        await self._builds.aclose()
        self._uploads.close()


async def _list(call: Call) -> web.StreamResponse:
    return web.json_response([_listed(one) for one in await names.named(call.client)])


async def _tags(call: Call, name: str) -> web.StreamResponse:
    return web.json_response([_tagged(one, tag) for one in await _of(call.client, name) for tag in one.tags])


async def _exists(call: Call, text: str) -> web.StreamResponse:
    found = await names.find(call.client, text)
    if found is None:
        raise Refusal(404, f"the template {text[:200]!r} does not exist", "not_found")
    return web.json_response({"templateID": names.name_of(found), "public": False})


async def _of(client: Client, name: str) -> list[Commit]:
    """The images of a template, one for each tag or more."""
    found = [one for one in await names.named(client) if names.name_of(one) == name]
    if not found:
        raise Refusal(404, f"the template {name[:200]!r} does not exist", "not_found")
    return found


async def _remove(call: Call, text: str) -> web.StreamResponse:
    """Remove a template with all its tags, or the one that is named."""
    if not names.is_name(text):
        return await snapshots.remove(call.client, text)
    name, tag = names.parts(text)
    # The newest first: it may have been made of an older one.
    for one in reversed(await _of(call.client, name)):
        if ":" not in text or tag in one.tags:
            await removed(call.client, one.image)
    return web.Response(status=204)


async def _assign(call: Call) -> web.StreamResponse:
    client = call.client
    body = await jsonbody.read(call.request, {"target", "tags"})
    name, tag = names.parts(body.get("target"))
    found = await names.find(client, f"{name}:{tag}")
    if found is None:
        raise Refusal(404, f"the template {name}:{tag} does not exist", "not_found")
    tags = names.tags_of(body.get("tags"))
    await names.give(client, found.image, name, tags)
    return web.json_response({"tags": tags, "buildID": _build_id(found)}, status=201)


async def _unassign(call: Call) -> web.StreamResponse:
    client = call.client
    body = await jsonbody.read(call.request, {"name", "tags"})
    name, _ = names.parts(body.get("name"))
    tags = names.tags_of(body.get("tags"))
    for one in await _of(client, name):
        if set(tags) & {*one.tags}:
            await removed(client, one.image)
    return web.Response(status=204)


def _listed(one: Commit) -> dict[str, Any]:
    """A template of a list; what the platform does not count is told as none."""
    name, at = names.name_of(one), _time(one)
    return {
        "templateID": name,
        "buildID": _build_id(one),
        "cpuCount": 0,
        "memoryMB": 0,
        "diskSizeMB": 0,
        "public": False,
        "aliases": [name],
        "names": [f"{name}:{tag}" for tag in one.tags],
        "createdAt": at,
        "updatedAt": at,
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": 1,
        "envdVersion": ENVD_VERSION,
        "buildStatus": "ready",
    }


def _tagged(one: Commit, tag: str) -> dict[str, Any]:
    return {"tag": tag, "buildID": _build_id(one), "createdAt": _time(one)}


def _build_id(one: Commit) -> str:
    """The same for the same image."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, one.digest))


def _time(one: Commit) -> str:
    return datetime.fromtimestamp(one.created_at_ms / 1000, UTC).isoformat()
