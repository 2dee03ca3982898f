"""Prime's control plane: which route a request is for, and the sandboxes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from rollbox import Client, Sandbox, SandboxError, SandboxRecord, errors
from rollbox_bridges.bodies import json_object
from rollbox_bridges.keys import owner_key
from rollbox_bridges.prime import exposures, logs, policies, records
from rollbox_bridges.prime.calls import Call, Route
from rollbox_bridges.prime.checkpoints import Checkpoints, image_of
from rollbox_bridges.prime.creating import Wish, wish_of
from rollbox_bridges.prime.creations import Creations
from rollbox_bridges.prime.sessions import Session
from rollbox_bridges.prime.settings import Settings
from rollbox_bridges.prime.tokens import LIFE_S, Tokens
from rollbox_bridges.prime.words import Refusal, as_refusal, unsupported
from rollbox_bridges.sessions import Owners

USER: Final = "rollbox"
"""The first part of the address of every sandbox at the gateway."""
_BASE: Final = ("api", "v1")
_BEARER: Final = "Bearer "
_MOST_IDS: Final = 100
_AT_ONCE: Final = 32
# The words of paths that are no name.
_WORDS: Final = frozenset(
    [
        "sandbox",
        "sandboxes",
        "auth",
        "error-context",
        "logs",
        "egress-policy",
        "expose",
        "all",
        "checkpoints",
        "networks",
        "volumes",
        "ssh-session",
        "checkpoints:batchGet",
        "status:batchGet",
        "background-jobs",
        "images",
        "build",
        "template",
        "user",
        "teams",
    ]
)
# What Prime has and rollbox has not, by a part of the path, and what to do instead.
_MISSING: Final = {
    "networks": ("a network between sandboxes", "Expose a port, or run what talks in one sandbox."),
    "volumes": ("a volume", "Upload files, or mount data sets in a pool's template."),
    "ssh-session": ("SSH", "`rollbox shell` opens a terminal in a sandbox."),
    "images": ("a store of images", "Any image is used by its name; `rollbox image build` makes images."),
    "template": ("a credential of a registry", "The installation has those of its registries."),
    "user": ("an account", "A key is all that a caller has here."),
    "teams": ("a team", "team_id of a sandbox is kept, and lists can ask for it."),
}


class Control:
    """The routes of the control plane.

    Args:
        settings: of the bridge.
        owners: clients and sessions.
        tokens: of sandboxes.
    """

    def __init__(self, settings: Settings, owners: Owners[Session], tokens: Tokens) -> None:
        self._settings = settings
        self._owners = owners
        self._tokens = tokens
        self._creations = Creations()
        self._checkpoints = Checkpoints()
        one = ("sandbox", "*")
        self._routes: dict[tuple[str, ...], Route] = {
            ("POST", "sandbox"): self._create,
            ("GET", "sandbox"): self._list,
            ("DELETE", "sandbox"): self._delete_many,
            ("GET", *one): self._get,
            ("DELETE", *one): self._delete,
            ("POST", "sandbox", "status:batchGet"): self._statuses,
            ("POST", *one, "auth"): self._auth,
            ("GET", *one, "error-context"): self._error_context,
            ("GET", *one, "logs"): logs.get,
            ("GET", *one, "egress-policy"): policies.get,
            ("PUT", *one, "egress-policy"): policies.put,
            ("POST", *one, "expose"): exposures.expose,
            ("GET", *one, "expose"): exposures.of_one,
            ("GET", "sandbox", "expose", "all"): exposures.of_all,
            ("DELETE", *one, "expose", "*"): exposures.unexpose,
            ("POST", *one, "checkpoints"): self._checkpoints.take,
            ("GET", *one, "checkpoints"): self._checkpoints.of_sandbox,
            ("DELETE", *one, "checkpoints"): self._checkpoints.remove_of_sandbox,
            ("POST", "sandbox", "checkpoints:batchGet"): self._checkpoints.get_many,
            ("GET", "sandbox", "checkpoints", "*"): self._checkpoints.get,
            ("DELETE", "sandbox", "checkpoints", "*"): self._checkpoints.remove,
        }

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve a request.

        Raises:
            Refusal: it is refused.
        """
        parts = request.path.strip("/").split("/")
        if tuple(parts[:2]) != _BASE:
            raise Refusal(404, f"there is no {request.method} {request.path[:200]}")
        parts = parts[2:]
        key = self._key(request)
        names = [part for part in parts if part not in _WORDS]
        route = self._routes.get((request.method, *("*" if part not in _WORDS else part for part in parts)))
        if route is None:
            raise _unknown(request, parts)
        try:
            return await route(Call(request, self._owners, key, *names[:2]))
        except SandboxError as error:
            raise as_refusal(error) from error

    async def _create(self, call: Call) -> web.StreamResponse:
        wish = wish_of(await json_object(call.request), self._settings)
        client = await call.client()
        if wish.checkpoint is not None:
            wish = await _restored(client, wish)

        async def keep(sandbox: Sandbox) -> None:
            await self._owners.keep(sandbox, call.key)

        made = await self._creations.created(client, call.key, wish, keep)
        record = made.record if isinstance(made, Sandbox) else made
        return web.json_response({**records.told(record), "gatewayAuth": self._authority(call, record)})

    async def _list(self, call: Call) -> web.StreamResponse:
        query = call.request.query
        wanted = records.wanted_of(query, query.getall("labels", []))
        found = records.found(await (await call.client()).list(wanted.labels, all=not wanted.active), wanted)
        return web.json_response(records.page(found, wanted))

    async def _get(self, call: Call) -> web.StreamResponse:
        return web.json_response(records.told(await (await call.client()).get(call.name)))

    async def _delete(self, call: Call) -> web.StreamResponse:
        client = await call.client()
        # An unknown one is told; one that has ended is deleted once more, which changes nothing.
        await client.get(call.name)
        await self._owners.drop(call.name)
        for error in (await client.delete(call.name)).failed.values():
            raise error
        return web.json_response({"id": call.name, "status": "TERMINATED"})

    async def _delete_many(self, call: Call) -> web.StreamResponse:
        body = await json_object(call.request, {"sandbox_ids", "labels", "team_id", "user_id", "all_users"})
        client = await call.client()
        names = await _named(client, body)
        for name in names:
            await self._owners.drop(name)
        report = await client.delete(*names) if names else None
        failed = {} if report is None else report.failed
        told = [{"sandbox_id": name, "error": str(error)} for name, error in failed.items()]
        succeeded = [] if report is None else report.deleted
        message = f"{len(succeeded)} deleted, {len(told)} not"
        return web.json_response({"succeeded": succeeded, "failed": told, "message": message})

    async def _statuses(self, call: Call) -> web.StreamResponse:
        body = await json_object(call.request, {"sandbox_ids"})
        wanted = _ids(body.get("sandbox_ids"))
        client, slots = await call.client(), asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> SandboxRecord | None:
            async with slots:
                try:
                    return await client.get(name)
                except errors.SandboxNotFound:
                    return None

        found = dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))
        missing = [
            {"sandbox_id": name, "code": "NOT_FOUND", "message": f"there is no sandbox {name}"} for name in found
        ]
        return web.json_response(
            {
                "statuses": [_status(record) for record in found.values() if record is not None],
                "errors": [one for one in missing if found[one["sandbox_id"]] is None],
            }
        )

    async def _auth(self, call: Call) -> web.StreamResponse:
        record = await (await call.client()).get(call.name)
        return web.json_response(self._authority(call, record))

    async def _error_context(self, call: Call) -> web.StreamResponse:
        now = records.standing_of(await (await call.client()).get(call.name))
        told = {"status": now.status, "errorType": now.error_type, "errorMessage": now.error_message}
        return web.json_response(told)

    def _authority(self, call: Call, record: SandboxRecord) -> dict[str, Any]:
        """What a client needs for the gateway."""
        expires_at_s = int(time.time()) + LIFE_S
        return {
            "gateway_url": self._settings.public_url or f"{call.request.scheme}://{call.request.host}",
            "user_ns": USER,
            "job_id": record.id,
            "token": self._tokens.made(record.id, call.key, expires_at_s),
            "expires_at": records.time_of(expires_at_s * 1000),
            "is_vm": records.is_vm(record),
        }

    def _key(self, request: web.Request) -> str:
        given = request.headers.get("Authorization", "")
        key = owner_key(given.removeprefix(_BEARER), self._settings.keys) if given.startswith(_BEARER) else None
        if key is None:
            raise Refusal(401, "the Authorization header has no key that is known here", "unauthenticated")
        return key

    async def aclose(self) -> None:
        """End what is under way; sandboxes that are ready go on."""
        await self._creations.aclose()
        await self._checkpoints.aclose()


async def _restored(client: Client, wish: Wish) -> Wish:
    return wish.of_image(await image_of(client, wish.checkpoint or ""))


async def _named(client: Client, body: dict[str, Any]) -> list[str]:
    """The sandboxes that a delete of many is for: by their ids, or all that have not ended and have what it says."""
    if body.get("sandbox_ids"):
        if body.get("labels"):
            raise Refusal(400, "sandbox_ids and labels are both given: give one of them")
        return _ids(body["sandbox_ids"], 500)
    given = body.get("labels") or []
    if not isinstance(given, list):
        raise Refusal(400, "labels is not a list of texts")
    if not given and not (body.get("all_users") or body.get("user_id") or body.get("team_id")):
        raise Refusal(400, "neither sandbox_ids nor labels, a user, a team or all users are given: nothing to delete")
    query = {name: body[name] for name in ("team_id", "user_id") if body.get(name)}
    wanted = records.wanted_of({**query, "is_active": "true"}, given)
    return [one.id for one in records.found(await client.list(wanted.labels), wanted)]


def _ids(given: Any, most: int = _MOST_IDS) -> list[str]:  # noqa: ANN401 - JSON
    if not isinstance(given, list) or not 1 <= len(given) <= most or not all(isinstance(one, str) for one in given):
        raise Refusal(400, f"sandbox_ids is not a list of 1 to {most} texts")
    return list(dict.fromkeys(given))


def _status(record: SandboxRecord) -> dict[str, Any]:
    now = records.standing_of(record)
    told = {"sandbox_id": record.id, "status": now.status, "error_type": now.error_type}
    return {**told, "error_message": now.error_message, "pending_image_build_id": None}


def _unknown(request: web.Request, parts: Sequence[str]) -> Refusal:
    for part in parts:
        if part in _MISSING:
            return unsupported(*_MISSING[part])
    return Refusal(404, f"there is no {request.method} {request.path[:200]}")
