"""Network policies as the control plane answers them, of sandboxes that reach nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support.fake_problems import problem

if TYPE_CHECKING:
    from tests.support.gateway_fake import FakeGateway

_INSTALLATION: dict[str, dict[str, Any]] = {
    "offline": {"mode": "none"},
    "packages": {"mode": "allow", "allow": [{"host": "pypi.org", "cidr": None, "ports": [], "name": "pypi"}]},
}
_MODES = {"none": "offline", "allow": "rules", "deny": "open", "open": "open"}


@dataclass
class FakeEgress:
    """The policies of sandboxes by id, and what was asked for.

    Attributes:
        cut: how many connections each switch closes.
    """

    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    cut: int = 0
    own: dict[str, dict[str, Any]] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)

    async def log(self, request: web.Request) -> web.Response:
        """Show the attempts that a test has set, of every sandbox."""
        return web.json_response({"attempts": self.attempts})

    async def presets(self, request: web.Request) -> web.Response:
        """List the installation's presets and the owner's."""
        return web.json_response({"presets": [self._preset(name) for name in sorted({*_INSTALLATION, *self.own})]})

    async def preset(self, request: web.Request) -> web.Response:
        """Show, declare or remove one."""
        name = request.match_info["name"]
        if request.method == "DELETE":
            return web.json_response({"name": name, "removed": self.own.pop(name, None) is not None})
        if request.method == "PUT":
            if name in _INSTALLATION:
                return problem("conflict", f"{name} is a preset of this installation: choose another name")
            self.own[name] = await request.json()
        if name not in _INSTALLATION and name not in self.own:
            return problem("not_found", f"there is no egress preset {name}")
        return web.json_response(self._preset(name))

    def _preset(self, name: str) -> dict[str, Any]:
        policy = {"include": [], "allow": [], "deny": [], **(self.own.get(name) or _INSTALLATION[name])}
        limits = {"connections": None, **policy.get("limits", {})}
        return {
            "name": name,
            "source": "own" if name in self.own else "installation",
            "policy": policy | {"limits": limits},
        }

    async def one(self, gateway: FakeGateway, request: web.Request) -> web.Response:
        """Show or switch the policy of one sandbox."""
        sandbox_id = request.match_info["id"]
        if request.method == "PUT":
            body = await request.json()
            self.asked.append(body)
            self._switch(sandbox_id, body["policy"])
            gateway.sandboxes[sandbox_id]["egress"] = self.states[sandbox_id]["policy"]
        return web.json_response(self.states.get(sandbox_id, _state("offline", "offline", [], 0, 0)))

    def _switch(self, sandbox_id: str, policy: str | dict[str, Any]) -> None:
        revision = self.states.get(sandbox_id, {}).get("revision", 0) + 1
        if isinstance(policy, str):
            mode = "offline" if policy == "offline" else "rules"
            self.states[sandbox_id] = _state(policy, mode, ["pypi.org"], revision, self.cut)
            return
        hosts = [one if isinstance(one, str) else one["host"] for one in policy.get("allow", ())]
        self.states[sandbox_id] = _state("custom", _MODES[policy["mode"]], hosts, revision, self.cut)
        if until := policy.get("until"):
            self.states[sandbox_id]["rules"] |= {"mode": "dated", "until": until}


def _state(policy: str, mode: str, hosts: list[str], revision: int, cut: int) -> dict[str, Any]:
    allow = [
        {"id": f"{policy}/allow {number}", "host": host, "cidr": None, "ports": [[80, 80], [443, 443]]}
        for number, host in enumerate(hosts if mode == "rules" else [], start=1)
    ]
    link = {"state": "up" if revision else "none", "detail": ""}
    rules = {"mode": mode, "allow": allow, "deny": [], "limits": {}}
    answer = {"policy": policy, "revision": revision, "applied": True, "cut": cut, "link": link, "rules": rules}
    return {**answer, "later": 1}
