"""The pools of the fake gateway: kept as they are declared; nothing fills them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support.fake_problems import problem

if TYPE_CHECKING:
    from tests.support.gateway_fake import FakeGateway

STATUS: dict[str, Any] = {
    **dict.fromkeys(("ready", "starting", "outdated", "wanted", "claimed_per_minute"), 0),
    "why": "it has not been planned yet",
    "failures": [],
    "paused_until_ms": None,
}
SPEC: dict[str, Any] = {"min_warm": 0, "starts_per_minute": 600, "surge": 10, "auto": True, "drain": False}


async def pools(fake: FakeGateway, _: web.Request) -> web.Response:
    """List them."""
    return web.json_response({"pools": [one for _, one in sorted(fake.pools.items())]})


async def pool(fake: FakeGateway, request: web.Request) -> web.Response:
    """Declare, change, read or remove one."""
    name = request.match_info["name"]
    found: dict[str, Any] | None = fake.pools.get(name)
    if request.method == "DELETE":
        return web.json_response({"name": name, "removed": fake.pools.pop(name, None) is not None})
    if request.method == "PUT":
        spec = {**SPEC, **await request.json()}
        fake.pools[name] = found = {"name": name, "spec": spec, "trouble": "", "status": dict(STATUS)}
    if found is None:
        return problem("not_found", f"there is no pool {name!r}")
    if request.method == "PATCH":
        found["spec"].update(await request.json())
    return web.json_response(found)
