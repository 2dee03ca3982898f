"""Answers every failure, FastAPI's own included, as ``application/problem+json`` (RFC 9457)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, cast

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.api import said
from controlplane.api.request_id import request_id
from controlplane.errors import Problem
from controlplane.errors.problem import MEDIA_TYPE
from controlplane.model.units import in_words

# A validation error as pydantic lists it, with the keys type, loc, msg, input, ctx.
Fault = Mapping[str, Any]

# The words for a bound, and the name under which pydantic tells it.
_BOUNDS: Final = {
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
}
_OBJECTS: Final = frozenset({"dict_type", "model_attributes_type", "model_type"})
_log = structlog.get_logger("api")


def install(app: FastAPI) -> None:
    """Registers exception handlers on ``app`` that answer every failure as a problem."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _framework)


def answer(problem: Problem, status: int | None = None, headers: dict[str, str] | None = None) -> Response:
    """The HTTP answer for ``problem``; ``status`` replaces the code's status where HTTP has a more specific one."""
    said.refused(problem.code)
    body = problem.to_json(request_id())
    headers = dict(headers or {})
    if status is not None:
        body["status"] = status
    if problem.retry_after_ms is not None:
        headers["Retry-After"] = str(-(-problem.retry_after_ms // 1000))
    return Response(json.dumps(body), status or problem.entry.http, headers, MEDIA_TYPE)


def invalid(errors: Sequence[Fault], body: object = None) -> Problem:
    """One problem for all validation errors: the detail describes the first one and says how many more there are.

    Args:
        errors: what pydantic found.
        body: what was sent; None: nothing that has fields.
    """
    first = errors[0]
    where = ".".join(str(part) for part in _written(first, body))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Problem("invalid_argument", f"{_sentence(first, where)}{more}", field=where, reason=first["type"])


def _written(error: Fault, body: object) -> Iterator[str | int]:
    """The names of a place as its sender wrote them: pydantic names the branches of a union too."""
    place = error["loc"]
    if place[0] != "body" or not isinstance(body, dict | list):
        yield from (part for part in place if part not in ("body", "query", "header"))
        return
    there: object = body
    for number, part in enumerate(place[1:], start=2):
        named = isinstance(there, dict) and isinstance(part, str)
        if (isinstance(there, dict) and part in there) or (isinstance(there, list) and isinstance(part, int)):
            there = there[part]
            yield part
        elif named and number == len(place) and error["type"] == "missing":
            yield part


def _sentence(error: Fault, where: str) -> str:
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']} at position {error['loc'][-1]}"
    if error["type"] == "extra_forbidden":
        return f"{where} is not a known field"
    if error["type"] == "missing":
        return f"{where or 'the body'} is missing"
    given, message = error.get("input"), str(error["msg"]).removeprefix("Value error, ")
    message = "must be an object" if error["type"] in _OBJECTS else message.replace("Input should be", "must be")
    if error["type"] in _BOUNDS and isinstance(given, int | float):
        words, bound = _BOUNDS[error["type"]]
        return f"{where}: must be {words} {in_words(where, error['ctx'][bound])}, got {in_words(where, given)}"
    if error["type"] == "string_pattern_mismatch":
        message = f"must have the form {error['ctx']['pattern']}"
    # Shows the refused value if it is a number or text. Never one of `env`, which may hold secrets; lists and objects
    # would not help the caller.
    said = where.startswith("env") or repr(given) in message or not isinstance(given, int | float | str)
    shown = "" if said else f", got {given!r}"
    return f"{where or 'the body'}: {message}{shown[:200]}"


async def _problem(_: Request, error: Exception) -> Response:
    return answer(cast("Problem", error))


async def _invalid(_: Request, error: Exception) -> Response:
    refused = cast("RequestValidationError", error)
    return answer(invalid(refused.errors(), refused.body))


async def _framework(request: Request, raised: Exception) -> Response:
    error = cast("HTTPException", raised)
    if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return answer(Problem("payload_too_large", error.detail))
    asked = f"{request.method} {request.url.path}"
    detail = {404: f"there is nothing at {asked}", 405: f"{asked}: the method is not allowed here"}
    problem = Problem("invalid_argument", detail.get(error.status_code, f"{asked}: {error.detail}"))
    return answer(problem, error.status_code, dict(error.headers or {}))


class Unforeseen:
    """Middleware: logs an unexpected exception and answers it as ``internal``, naming only the exception's type.

    Starlette's own handler for unexpected exceptions runs outside of all middleware, where the request id is gone.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            _log.exception("request failed, its caller gets the code internal", path=scope.get("path"))
            if begun:
                raise
            asked = f"{scope.get('method')} {scope.get('path')}"
            problem = Problem("internal", f"{type(error).__name__} while answering {asked}")
            await answer(problem)(scope, receive, send)
