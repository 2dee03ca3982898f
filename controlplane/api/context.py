"""The FastAPI dependencies of the routes: the service, and the owner that the API key belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from controlplane.api.auth import ApiKeys
from controlplane.console import Pages
from controlplane.errors import Problem
from controlplane.lifecycle import Dependencies, Sandboxes
from controlplane.settings import PREFIX


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


# All of these are coroutines although none awaits anything: FastAPI would run plain functions in a thread pool.


async def context_of(request: Request) -> Context:
    """The context of the app that answers ``request``."""
    context: Context = request.app.state.context
    return context


async def _service(request: Request) -> Sandboxes:
    return (await context_of(request)).service


# Only adds the scheme to the OpenAPI document. ``ApiKeys`` checks the key, so that a refusal is a `Problem`.
_scheme = HTTPBearer(auto_error=False, scheme_name="api_key", description="An API key: rbx_...")


async def _owner(request: Request, _: Annotated[object, Depends(_scheme)]) -> str:
    return (await context_of(request)).keys.owner(request.headers.get("authorization"))


async def _operator(request: Request, _: Annotated[object, Depends(_scheme)]) -> str:
    context = await context_of(request)
    owner = context.keys.owner(request.headers.get("authorization"))
    if owner not in context.operators:
        raise no_operator(context, owner)
    return owner


async def _reader(name: str, request: Request, _: Annotated[object, Depends(_scheme)]) -> str:
    context = await context_of(request)
    owner = context.keys.owner(request.headers.get("authorization"))
    if owner != name and owner not in context.operators:
        raise no_operator(context, owner)
    return owner


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
# An owner that may change settings of other owners.
Operator = Annotated[str, Depends(_operator)]
