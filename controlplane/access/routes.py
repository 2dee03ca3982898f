"""The scope that each route needs. A route that is not here needs an operator's key; a test finds it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from controlplane.access.scopes import Scope

ONE_SANDBOX: Final = "/v1/sandboxes/{sandbox_id}"
_BOX: Final = ONE_SANDBOX

# Answers with a token of a sandbox need "run", also where they only read: the token opens the sandbox.
ROUTES: Final[Mapping[tuple[str, str], Scope]] = {
    ("GET", "/v1/info"): "read",
    ("GET", "/v1/sandboxes"): "read",
    ("POST", "/v1/sandboxes"): "run",
    ("DELETE", "/v1/sandboxes"): "run",
    ("GET", _BOX): "read",
    ("DELETE", _BOX): "run",
    ("POST", f"{_BOX}/unbound"): "run",
    ("POST", f"{_BOX}/extend"): "run",
    ("POST", f"{_BOX}/token"): "run",
    ("POST", f"{_BOX}/share"): "run",
    ("GET", f"{_BOX}/timeline"): "read",
    ("GET", "/v1/events"): "read",
    ("GET", "/v1/events/dead"): "operator",
    ("POST", f"{_BOX}/commit"): "images",
    ("POST", f"{_BOX}/checkpoint"): "run",
    ("GET", f"{_BOX}/egress"): "read",
    ("PUT", f"{_BOX}/egress"): "run",
    ("GET", f"{_BOX}/egress/log"): "read",
    ("PUT", f"{_BOX}/lease"): "run",
    ("DELETE", f"{_BOX}/lease"): "run",
    ("POST", f"{_BOX}/ports/{{port}}"): "run",
    ("DELETE", f"{_BOX}/ports/{{port}}"): "run",
    ("POST", "/v1/leases/{name}"): "run",
    ("GET", "/v1/groups/{name}"): "run",
    ("PUT", "/v1/groups/{name}"): "run",
    ("DELETE", "/v1/groups/{name}"): "run",
    ("POST", "/v1/preflight"): "read",
    ("GET", "/v1/images"): "read",
    ("GET", "/v1/images/commits"): "read",
    ("DELETE", "/v1/images/commits/{name}"): "images",
    ("GET", "/v1/images/config/{name}"): "read",
    ("POST", "/v1/images/build"): "images",
    ("POST", "/v1/images/convert"): "images",
    ("POST", "/v1/images/prefetch"): "images",
    ("GET", "/v1/egress/presets"): "read",
    ("GET", "/v1/egress/presets/{name}"): "read",
    ("PUT", "/v1/egress/presets/{name}"): "egress",
    ("DELETE", "/v1/egress/presets/{name}"): "egress",
    ("GET", "/v1/datasets"): "read",
    ("GET", "/v1/datasets/{name}"): "read",
    ("PUT", "/v1/datasets/{name}"): "operator",
    ("DELETE", "/v1/datasets/{name}"): "operator",
    ("GET", "/v1/pools"): "read",
    ("GET", "/v1/pools/{name}"): "read",
    ("PUT", "/v1/pools/{name}"): "pools",
    ("PATCH", "/v1/pools/{name}"): "pools",
    ("DELETE", "/v1/pools/{name}"): "pools",
    ("GET", "/v1/quota"): "read",
    ("GET", "/v1/quotas"): "operator",
    ("GET", "/v1/quotas/{name}"): "read",
    ("PUT", "/v1/quotas/{name}"): "operator",
    ("PATCH", "/v1/quotas/{name}"): "operator",
    ("DELETE", "/v1/quotas/{name}"): "operator",
    ("GET", "/v1/audit"): "operator",
    ("GET", "/v1/capacity"): "operator",
    ("GET", "/v1/nodes"): "operator",
    ("GET", "/v1/nodes/{name}"): "operator",
    ("PUT", "/v1/nodes/{name}/drain"): "operator",
    ("DELETE", "/v1/nodes/{name}/drain"): "operator",
    ("GET", "/v1/keys"): "read",
    ("POST", "/v1/keys"): "keys",
    ("POST", "/v1/keys/{key_id}/rotate"): "keys",
    ("DELETE", "/v1/keys/{key_id}"): "keys",
    ("GET", "/v1/console"): "read",
    ("GET", "/v1/console/sandboxes/{sandbox_id}"): "read",
    ("GET", "/v1/console/usage"): "read",
    ("GET", "/v1/console/static/{name}"): "read",
}

# Names of images have slashes.
_LONG: Final = ("/v1/images/config/", "/v1/images/commits/")
# Changes nothing but how long a program's sandboxes live, and comes every few seconds from each program.
_QUIET: Final = frozenset({("POST", "/v1/leases/{name}")})


@dataclass(frozen=True, slots=True)
class Route:
    """The route of a request.

    Attributes:
        template: the path with the names of its parameters.
        scope: that it needs.
        names: what the path has in their places.
    """

    method: str
    template: str
    scope: Scope
    names: tuple[str, ...] = ()

    @property
    def audited(self) -> bool:
        """Whether its calls change something or open a sandbox: what needs more than "read", but operators' reads."""
        changes = self.method != "GET" or self.scope == "run"
        return changes and self.scope != "read" and (self.method, self.template) not in _QUIET


def _by_length() -> dict[tuple[str, int], list[tuple[list[str], Route]]]:
    """The routes with their parts, by method and number of parts."""
    found: dict[tuple[str, int], list[tuple[list[str], Route]]] = {}
    for (method, template), scope in ROUTES.items():
        parts = template.split("/")
        found.setdefault((method, len(parts)), []).append((parts, Route(method, template, scope)))
    return found


_BY_LENGTH: Final = _by_length()


def route_of(method: str, path: str) -> Route | None:
    """The route of a request; None: there is none.

    Args:
        method: in capitals.
        path: as the router sees it.

    Cost: about 3 us.
    """
    long = next((start for start in _LONG if path.startswith(start)), None)
    parts = path.split("/") if long is None else [*long.split("/")[:-1], path.removeprefix(long)]
    # A part that is written out goes before one that is any name: /images/commits is no image.
    best, most = None, -1
    for template, route in _BY_LENGTH.get((method, len(parts)), ()):
        pairs = [*zip(template, parts, strict=True)]
        same = sum(one == other for one, other in pairs)
        if same > most and all(one == other or one[:1] == "{" for one, other in pairs):
            best, most = route, same
            names = tuple(other for one, other in pairs if one[:1] == "{")
    return None if best is None else replace(best, names=names)


def scope_of(route: Route | None) -> Scope:
    """The scope that a request of a route needs; None: there is no such route."""
    return "operator" if route is None else route.scope
