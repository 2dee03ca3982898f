"""The API keys of the fake gateway: kept as they are made; none of them opens anything."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.fake_problems import problem


@dataclass
class FakeKeys:
    """Keys by id."""

    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    graces_ms: list[int] = field(default_factory=list)

    async def all(self, request: web.Request) -> web.Response:
        """List an owner's keys."""
        owner = request.query.get("owner", "me")
        return web.json_response({"keys": [one for one in self.made.values() if one["owner"] == owner]})

    async def create(self, request: web.Request) -> web.Response:
        """Make one."""
        wish, now_ms, made = await request.json(), round(1000 * time.time()), f"key-{len(self.made):012}"
        lives_ms = wish.get("expires_in_ms")
        self.made[made] = {
            "id": made,
            "name": wish["name"],
            "owner": wish.get("owner", "me"),
            "scopes": wish["scopes"],
            "state": "valid",
            "made_at_ms": now_ms,
            "made_by": "settings",
            "expires_at_ms": None if lives_ms is None else now_ms + lives_ms,
            "rotated_at_ms": None,
            "revoked_at_ms": None,
            "used_at_ms": None,
            "later": 1,
        }
        return web.json_response({**self.made[made], "key": f"rbxk_{made}_1"}, status=201)

    async def rotate(self, request: web.Request) -> web.Response:
        """Give one another text."""
        self.graces_ms.append((await request.json())["grace_ms"])
        if request.match_info["key"] not in self.made:
            return problem("not_found", "there is no such key")
        return web.json_response({**self.made[request.match_info["key"]], "key": "rbxk_another"})

    async def revoke(self, request: web.Request) -> web.Response:
        """End one."""
        if request.match_info["key"] not in self.made:
            return problem("not_found", "there is no such key")
        self.made[request.match_info["key"]]["state"] = "revoked"
        return web.json_response(self.made[request.match_info["key"]])
