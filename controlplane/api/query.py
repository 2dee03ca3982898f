"""Refuses unknown and repeated query parameters, as unknown fields of a body are refused, instead of ignoring them."""

from typing import Final

from fastapi import Request
from fastapi.routing import APIRoute

from controlplane.errors import Problem

REPEATABLE: Final = frozenset({"label", "state"})


async def closed_query(request: Request) -> None:
    """Refuses parameters that the route does not have, and repetitions of parameters that take one value.

    Raises:
        Problem: invalid_argument, naming the parameter.
    """
    route = request.scope["route"]
    known = {one.alias for one in route.dependant.query_params} if isinstance(route, APIRoute) else frozenset()
    for name in request.query_params:
        if name not in known:
            raise Problem("invalid_argument", f"{name[:64]!r} is not a known query parameter here", field=name[:64])
        if name not in REPEATABLE and len(request.query_params.getlist(name)) > 1:
            raise Problem("invalid_argument", f"{name} must not be given twice", field=name)
