"""The FastAPI dependencies of the routes: the service, and the caller that the API key belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from controlplane.access import IN_SETTINGS, Caller, opens, route_of, scope_of
from controlplane.api import said
from controlplane.api.auth import ApiKeys
from controlplane.console import Pages
from controlplane.errors import Problem
from controlplane.lifecycle import Dependencies, Sandboxes
from controlplane.settings import PREFIX
from controlplane.telemetry import RefusedCall


@dataclass(frozen=True, slots=True)
class Context:
    """What the routes need to serve requests.

    Attributes:
        limits: the installation's limits by name, as ``/v1/info`` shows them.
        ports_domain: the DNS domain under which gateways serve ports by host name; None: ports have no host names.
        operators: owners that may change settings of other owners (pools and quotas).
        console: the console's pages; None: it is switched off.
    """

    service: Sandboxes
    deps: Dependencies
    keys: ApiKeys
    limits: Mapping[str, int]
    ports_domain: str | None = None
    operators: frozenset[str] = frozenset()
    console: Pages | None = None


# The labels of the metric by the reasons of problems; without a reason it is for want of an operator's key.
_REFUSED: Final[Mapping[str, RefusedCall]] = {
    "api_key": "unknown",
    "api_key_expired": "expired",
    "api_key_revoked": "revoked",
}

# All of these are coroutines although none awaits anything: FastAPI would run plain functions in a thread pool.


async def context_of(request: Request) -> Context:
    """The context of the app that answers ``request``."""
    context: Context = request.app.state.context
    return context


async def _service(request: Request) -> Sandboxes:
    return (await context_of(request)).service


# Only adds the scheme to the OpenAPI document. ``ApiKeys`` checks the key, so that a refusal is a `Problem`.
_scheme = HTTPBearer(
    auto_error=False,
    scheme_name="api_key",
    description="An API key: rbxk_..., rbxs_... (shared), or one of the settings",
)


async def caller_of(context: Context, request: Request) -> Caller:
    """The caller of a request, with a key that allows it; see ``ROUTES``.

    Raises:
        Problem: unauthenticated, or permission_denied.
    """
    caller = await context.keys.caller(request.headers.get("authorization"))
    said.shown(caller)
    route = route_of(request.method, request.scope["path"])
    opens(caller, route)
    scope = scope_of(route)
    if not caller.may(scope):
        if caller.key_id == IN_SETTINGS:
            raise no_operator(context, caller.owner)
        caller.need(scope)
    return caller


async def _counted_caller(request: Request, _: Annotated[object, Depends(_scheme)]) -> Caller:
    context = await context_of(request)
    try:
        return await caller_of(context, request)
    except Problem as problem:
        # A store that does not answer refuses nobody.
        if problem.entry.fault == "caller":
            context.deps.metrics.call_refused(_REFUSED.get(problem.details.get("reason", ""), "scope"))
        raise


FromCaller = Annotated[Caller, Depends(_counted_caller)]


async def _owner(caller: FromCaller) -> str:
    return caller.owner


async def _operates(caller: FromCaller) -> bool:
    return caller.operates


async def _reader(name: str, request: Request, caller: FromCaller) -> str:
    if caller.owner != name and not caller.operates:
        context = await context_of(request)
        context.deps.metrics.call_refused("other_owner")
        raise no_operator(context, caller.owner)
    return caller.owner


def no_operator(context: Context, owner: str) -> Problem:
    """The refusal of what is for operators."""
    names = ", ".join(sorted(context.operators)) or "nobody"
    detail = (
        f"{owner} is no operator here ({PREFIX}OPERATORS names {names}): what holds for others is for an operator's "
        "key, and which owners are operators is controlplane.operators of the chart"
    )
    return Problem("permission_denied", detail, owner=owner)


App = Annotated[Context, Depends(context_of)]
Service = Annotated[Sandboxes, Depends(_service)]
Owner = Annotated[str, Depends(_owner)]
# Of a route with an owner's name: that owner, or an operator.
OwnerOrOperator = Annotated[str, Depends(_reader)]
# Of a route that needs an operator's key by ``ROUTES``.
Operator = Owner
# Whether the key is an operator's.
Operates = Annotated[bool, Depends(_operates)]
