"""The data sets of the fake gateway: kept as they are declared; nothing has their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support.fake_problems import problem

if TYPE_CHECKING:
    from tests.support.gateway_fake import FakeGateway


async def datasets(fake: FakeGateway, _: web.Request) -> web.Response:
    """List them."""
    return web.json_response({"datasets": [one for _, one in sorted(fake.datasets.items())]})


async def dataset(fake: FakeGateway, request: web.Request) -> web.Response:
    """Declare, read or remove one."""
    name = request.match_info["name"]
    if request.method == "DELETE":
        return web.json_response({"name": name, "removed": fake.datasets.pop(name, None) is not None})
    if request.method == "PUT":
        spec: dict[str, Any] = await request.json()
        source = " ".join(next((kind, spec[kind]) for kind in ("claim", "image", "folder") if kind in spec))
        fake.datasets[name] = {"name": name, "source": source, "owners": spec.get("owners", []), "trouble": ""}
    if name not in fake.datasets:
        return problem("not_found", f"there is no data set {name!r}")
    return web.json_response(fake.datasets[name])
