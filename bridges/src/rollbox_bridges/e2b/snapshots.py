"""Snapshots of files: images of rollbox. One without a name is a checkpoint, which ends by itself."""

from __future__ import annotations

from aiohttp import web

from rollbox import Client, Commit, Sandbox
from rollbox_bridges.e2b import jsonbody
from rollbox_bridges.e2b.words import Refusal, unsupported
from rollbox_bridges.removals import removed

_FILES_ALONE = "Ask for mode='filesystem': what runs in the sandbox is not part of it."


async def take(request: web.Request, sandbox: Sandbox) -> web.StreamResponse:
    """Make an image of a sandbox's files, whose name is a template.

    Raises:
        Refusal: the memory is asked for too, or the body is malformed.
        SandboxError: as `Sandbox.commit`.
    """
    body = await jsonbody.read(request, {"name", "memory"})
    name = body.get("name")
    if name is not None and not isinstance(name, str):
        raise Refusal(400, f"name {name!r} is not text")
    if body.get("memory") is not False:
        raise unsupported("a snapshot with memory", _FILES_ALONE)
    made = await sandbox.commit(name) if name else await sandbox.commit(checkpoint=True)
    return web.json_response({"snapshotID": str(made), "names": [name] if name else []}, status=201)


async def list_(client: Client) -> web.StreamResponse:
    """List the images that were made of sandboxes, in one page."""
    return web.json_response([_told(one) for one in (await client.commits()).images])


async def remove(client: Client, name: str) -> web.StreamResponse:
    """Remove an image that was made of a sandbox.

    Raises:
        Refusal: there is none of this name.
    """
    if not await removed(client, name):
        raise Refusal(404, f"the template {name[:200]!r} does not exist", "not_found")
    return web.Response(status=204)


def _told(one: Commit) -> dict[str, object]:
    return {"snapshotID": one.image, "names": [] if one.expires_at_ms else list(one.tags)}
