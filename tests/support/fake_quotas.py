"""Quotas and preflights as the control plane answers them, without what they limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

RESOURCES = ("sandboxes", "cpu_millicores", "memory_bytes", "gpu", "starting")


@dataclass
class FakeQuotas:
    """Declared limits by owner; the rest is what a test sets.

    Attributes:
        asked: bodies of preflights.
        nodes: by name; one that is drained has one claimed sandbox less at each look.
        drains: what was asked for: the node, and the body or None.
    """

    declared: dict[str, dict[str, int | None]] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    queue: list[dict[str, Any]] = field(default_factory=list)
    foresight: dict[str, Any] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    capacity: dict[str, Any] = field(default_factory=lambda: {"known": False})
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    drains: list[tuple[str, Any]] = field(default_factory=list)

    def _body(self, owner: str) -> dict[str, Any]:
        holds = owner if owner in self.declared else "*" if "*" in self.declared else None
        limits = self.declared.get(holds or "", {})
        return {
            "owner": owner,
            "declared_for": holds,
            "limits": {name: limits.get(name) for name in RESOURCES},
            "used": {name: self.used.get(name, 0) for name in RESOURCES},
            "waiting": len(self.queue),
        }

    async def own(self, request: web.Request) -> web.Response:
        """Answer for the owner of the key."""
        own = {"max_sandboxes": 100, "sandboxes_in_all": 7, "queue": self.queue, "later": 1}
        return web.json_response({**self._body("me"), **own})

    async def all(self, request: web.Request) -> web.Response:
        """List what was declared."""
        return web.json_response({"quotas": [self._body(owner) for owner in self.declared]})

    async def one(self, request: web.Request) -> web.Response:
        """Show, change or remove one."""
        owner = request.match_info["name"]
        if request.method == "PATCH":
            self.declared.setdefault(owner, {}).update(await request.json())
        elif request.method == "DELETE":
            self.declared.pop(owner, None)
        return web.json_response(self._body(owner))

    async def room(self, request: web.Request) -> web.Response:
        """Answer what the test has set."""
        return web.json_response(self.capacity)

    async def node_list(self, request: web.Request) -> web.Response:
        """List the nodes."""
        return web.json_response({"nodes": list(self.nodes.values()), "nodes_in_all": len(self.nodes)})

    async def node(self, request: web.Request) -> web.Response:
        """Show one."""
        node = self.nodes[request.match_info["name"]]
        answer = dict(node)
        if node["drain"]:
            node["claimed"] = max(0, node["claimed"] - 1)
        return web.json_response(answer)

    async def drain(self, request: web.Request) -> web.Response:
        """Drain one, or take it back."""
        node = self.nodes[request.match_info["name"]]
        body = await request.json() if request.method == "PUT" else None
        self.drains.append((node["name"], body))
        drain = {"since_ms": 1, "until_ms": 2, "by": "ops", "why": "is drained by an operator"}
        node.update({"drain": drain, "state": "draining"} if body else {"drain": None, "state": "ready"})
        return web.json_response(node)

    async def preflight(self, request: web.Request) -> web.Response:
        """Answer what the test has foreseen."""
        body = await request.json()
        self.asked.append(body)
        told = {"fits": True, "count": body["count"], "may_have": body["count"], "may_have_alone": body["count"]}
        return web.json_response({**told, "warm": 0, "image": "here", "needs": [], "blockers": [], **self.foresight})
