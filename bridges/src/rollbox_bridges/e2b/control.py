"""E2B's control plane: sandboxes, their time, their network and their metadata."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from aiohttp import web

from rollbox import Client, CreateOptions, EgressPolicy, Sandbox, SandboxError, SandboxRecord, errors
from rollbox_bridges.credentials import Credentials
from rollbox_bridges.e2b import jsonbody, lists, names, records, snapshots
from rollbox_bridges.e2b.creating import Wish, seconds, wish_of
from rollbox_bridges.e2b.network import policy_of
from rollbox_bridges.e2b.pools import options_of
from rollbox_bridges.e2b.sessions import Session
from rollbox_bridges.e2b.settings import Settings
from rollbox_bridges.e2b.templates import Call, Templates
from rollbox_bridges.e2b.words import Refusal, as_refusal, ended, unsupported
from rollbox_bridges.faults import meaning
from rollbox_bridges.sessions import Owners

_VERSIONS: Final = frozenset({"v1", "v2", "v3"})
_MOST_START_S: Final = 600.0
# What E2B has and rollbox has not, by the last or the first part of the path, and what to do instead.
_MISSING: Final = {
    "pause": ("pausing a sandbox", "It runs until its timeout, which can be extended."),
    "fork": ("forking a sandbox", "Create several of the same template."),
    "logs": ("the log of a sandbox", "Its commands have their own output."),
    "metrics": ("metrics of a sandbox", "`rollbox top` and the SDK's `sandbox.usage()` tell what it uses."),
    "templates": ("this of a template", "It is built, listed, tagged and removed."),
    "secrets": ("a store of secrets", "Give them as variables of the sandbox."),
    "volumes": ("a volume", "Write files, or mount data sets in a pool's template."),
}


class Control:
    """The routes of the control plane.

    Args:
        settings: of the bridge.
        owners: clients and sessions.
        credentials: of sandboxes.
    """

    def __init__(self, settings: Settings, owners: Owners[Session], credentials: Credentials) -> None:
        self._settings = settings
        self._owners = owners
        self._credentials = credentials
        self._templates = Templates(settings, credentials)
        self._endings: dict[str, asyncio.TimerHandle] = {}
        self._killing: set[asyncio.Task[Any]] = set()
        self._routes: dict[tuple[str, ...], Callable[[web.Request, str, str], Awaitable[web.StreamResponse]]] = {
            ("POST", "sandboxes"): self._create,
            ("GET", "sandboxes"): self._list,
            ("GET", "sandboxes", "*"): self._get,
            ("DELETE", "sandboxes", "*"): self._kill,
            ("POST", "sandboxes", "*", "connect"): self._connect,
            ("POST", "sandboxes", "*", "resume"): self._connect,
            ("POST", "sandboxes", "*", "timeout"): self._timeout,
            ("POST", "sandboxes", "*", "refreshes"): self._refresh,
            ("PUT", "sandboxes", "*", "network"): self._network,
            ("POST", "sandboxes", "*", "snapshots"): self._snapshot,
            ("GET", "snapshots"): self._snapshots,
        }

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve a request.

        Raises:
            Refusal: it is refused.
        """
        parts = request.path.strip("/").split("/")
        parts = parts[1:] if parts[0] in _VERSIONS else parts
        if parts == ["health"]:
            return web.Response(status=204)
        if request.method == "PUT" and parts[:-1] == ["templates", "uploads"]:
            return await self._templates.upload(request, parts[-1])
        key = self._key(request)
        sandbox_id = parts[1] if len(parts) > 1 and parts[0] == "sandboxes" and parts[1] not in _MISSING else ""
        try:
            if parts[0] == "templates":
                call = Call(request, key, await self._owners.client(key))
                if (served := await self._templates.serve(call, parts[1:])) is not None:
                    return served
            serve = self._routes.get((request.method, *(["*" if one is sandbox_id else one for one in parts])))
            if serve is None:
                raise _unknown(request, parts)
            return await serve(request, key, sandbox_id)
        except SandboxError as error:
            raise as_refusal(error, sandbox_id) from error

    async def _create(self, request: web.Request, key: str, _: str) -> web.StreamResponse:
        wish = wish_of(await jsonbody.read(request), self._settings)
        client = await self._owners.client(key)
        given = request.headers.get("Idempotency-Key")
        options: CreateOptions = {
            "labels": wish.labels,
            "env": wish.env,
            "ttl": max(1.0, wish.ttl_s),
            "lease": None,
            "egress": wish.egress,
            "start_timeout": _MOST_START_S,
            "idempotency_key": None if given is None else f"e2b-{given}",
        }
        sandbox = await self._made(client, wish, options)
        await self._owners.keep(sandbox, key)
        return web.json_response(self._opened(request, sandbox.record, key), status=201)

    async def _made(self, client: Client, wish: Wish, options: CreateOptions) -> Sandbox:
        """Create from a pool's template, from an image, or from a template that was built."""
        if not wish.named:
            return await client.create(wish.image, **options)
        try:
            pool = await client.pool(wish.template)
        except (errors.NotFound, errors.InvalidArgument):
            return await _of_image(client, wish, options)
        options.update(options_of(pool))
        return await client.create(pool.image, **options)

    async def _list(self, request: web.Request, key: str, _: str) -> web.StreamResponse:
        wish = lists.wish_of(request.query, request.query.getall("state", []))
        client = await self._owners.client(key)
        found = lists.found(await client.list(wish.labels), wish)
        if not request.path.startswith("/v2/"):
            return web.json_response([records.listed(one) for one in found])
        page = lists.page(found, wish)
        headers = {"x-next-token": page.next_token} if page.next_token else {}
        return web.json_response([records.listed(one) for one in page.records], headers=headers)

    async def _get(self, request: web.Request, key: str, sandbox_id: str) -> web.StreamResponse:
        record = await self._running(key, sandbox_id)
        access = self._credentials.sealed("access", sandbox_id, key)
        return web.json_response(records.told(record, access, self._domain(request)))

    async def _kill(self, _: web.Request, key: str, sandbox_id: str) -> web.StreamResponse:
        await self._running(key, sandbox_id)
        client = await self._owners.client(key)
        await self._owners.drop(sandbox_id)
        report = await client.delete(sandbox_id)
        for error in report.failed.values():
            raise error
        self._end_at(sandbox_id, None, key)
        return web.Response(status=204)

    async def _timeout(self, request: web.Request, key: str, sandbox_id: str) -> web.StreamResponse:
        body = await jsonbody.read(request, {"timeout"})
        await self._set_time(key, sandbox_id, seconds("timeout", body.get("timeout")), shorten=True)
        return web.Response(status=204)

    async def _refresh(self, request: web.Request, key: str, sandbox_id: str) -> web.StreamResponse:
        body = await jsonbody.read(request, {"duration"})
        await self._set_time(key, sandbox_id, seconds("duration", body.get("duration", 60)), shorten=False)
        return web.Response(status=204)

    async def _connect(self, request: web.Request, key: str, sandbox_id: str) -> web.StreamResponse:
        body = await jsonbody.read(request, {"timeout", "memory", "autoPause"})
        if body.get("autoPause"):
            raise unsupported("autoPause", "Leave it out.")
        await self._running(key, sandbox_id)
        if "timeout" in body:
            await self._set_time(key, sandbox_id, seconds("timeout", body["timeout"]), shorten=False)
        session = await self._owners.session(sandbox_id, key)
        return web.json_response(self._opened(request, session.sandbox.record, key))

    async def _set_time(self, key: str, sandbox_id: str, left_s: float, *, shorten: bool) -> None:
        """Have a sandbox end in so many seconds; the platform extends lives, and the bridge itself shortens them."""
        await self._running(key, sandbox_id)
        session = await self._owners.session(sandbox_id, key)
        record = await session.sandbox.extend(max(1.0, left_s))
        loop = asyncio.get_running_loop()
        pending = self._endings.get(sandbox_id)
        # Without an end of the bridge's own the platform's holds, which an extension has moved, or which is later.
        if not shorten and (pending is None or pending.when() > loop.time() + left_s):
            return
        later = record.expires_at_ms / 1000 - left_s - time.time() > 1
        self._end_at(sandbox_id, left_s if later else None, key)

    def _end_at(self, sandbox_id: str, left_s: float | None, key: str) -> None:
        pending = self._endings.pop(sandbox_id, None)
        if pending is not None:
            pending.cancel()
        if left_s is not None:
            loop = asyncio.get_running_loop()
            self._endings[sandbox_id] = loop.call_later(left_s, self._begin_to_end, sandbox_id, key)

    def _begin_to_end(self, sandbox_id: str, key: str) -> None:
        self._endings.pop(sandbox_id, None)
        task = asyncio.create_task(self._ended(sandbox_id, key), name="rollbox bridge timeout")
        self._killing.add(task)
        task.add_done_callback(self._killing.discard)

    async def _ended(self, sandbox_id: str, key: str) -> None:
        await self._owners.drop(sandbox_id)
        await (await self._owners.client(key)).delete(sandbox_id)

    async def _network(self, request: web.Request, key: str, sandbox_id: str) -> web.StreamResponse:
        body = await jsonbody.read(request)
        policy = policy_of(body)
        session = await self._owners.session(sandbox_id, key)
        await session.sandbox.egress(policy or self._settings.egress or EgressPolicy(mode="open"))
        return web.Response(status=204)

    async def _snapshot(self, request: web.Request, key: str, sandbox_id: str) -> web.StreamResponse:
        return await snapshots.take(request, (await self._owners.session(sandbox_id, key)).sandbox)

    async def _snapshots(self, _: web.Request, key: str, __: str) -> web.StreamResponse:
        return await snapshots.list_(await self._owners.client(key))

    async def _running(self, key: str, sandbox_id: str) -> SandboxRecord:
        record = await (await self._owners.client(key)).get(sandbox_id)
        if record.end is not None:
            raise Refusal(404, ended(sandbox_id, meaning(record.end)), record.end.cause)
        return record

    def _opened(self, request: web.Request, record: SandboxRecord, key: str) -> dict[str, Any]:
        access, traffic = (self._credentials.sealed(one, record.id, key) for one in ("access", "traffic"))
        return records.created(record, access, traffic, self._domain(request))

    def _domain(self, request: web.Request) -> str:
        return self._settings.domain or f"localhost:{request.url.port}"

    def _key(self, request: web.Request) -> str:
        given = request.headers.get("X-API-Key", "")
        key = self._settings.owner_key(given) if given else None
        if key is None:
            raise Refusal(401, "the X-API-Key header has no key that is known here", "unauthenticated")
        return key

    async def aclose(self) -> None:
        """Forget the ends that are to come; the platform's own remain. Builds of templates end."""
        await self._templates.aclose()
        for pending in self._endings.values():
            pending.cancel()
        for task in [*self._killing]:
            task.cancel()
            await asyncio.wait([task])


async def _of_image(client: Client, wish: Wish, options: CreateOptions) -> Sandbox:
    """Create from an image, or, where there is none of this name, from a template that was built."""
    try:
        return await client.create(wish.image, **options)
    except (errors.ImageNotFound, errors.ImagePullFailed):
        # Asked for last: a list of all images takes seconds on some engines.
        built = await names.find(client, wish.template)
        if built is None:
            raise
        key = options.get("idempotency_key")
        again: CreateOptions = {**options, "idempotency_key": None if key is None else f"{key}-built"}
        return await client.create(built.image, **again)


def _unknown(request: web.Request, parts: Sequence[str]) -> Refusal:
    for part in (parts[-1], parts[0]):
        if part in _MISSING:
            return unsupported(*_MISSING[part])
    return Refusal(404, f"there is no {request.method} {request.path[:200]}")
