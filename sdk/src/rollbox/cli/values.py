"""Values of parameters that need no conversion, so that Typer imports none.

Typer (0.29) converts every value by pydantic, whose import takes longer than the rest of a start: also what was not
given, and texts. What has its type already is taken as it is here; the rest is left to Typer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Conversion:
    def __init__(self, convert: Callable[[], Any]) -> None:
        self._convert = convert

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401
        several, kind = param.multiple or param.nargs == -1, param.type_descriptor.annotation
        if value is None:
            return () if several else None
        if kind in (bool, float, int, str) and isinstance(value, kind):
            return value
        if kind == list[str] and isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            return [*value]
        return self._convert().coerce(value, param=param, ctx=ctx)


def taken_as_they_are(parameters: list[Any]) -> list[Any]:
    """Make parameters of a command take values of their own type without a conversion; returns them. Idempotent."""
    for one in parameters:
        if "get_runtime_param" not in vars(one) and hasattr(one, "get_runtime_param"):
            conversion = _Conversion(one.get_runtime_param)
            one.get_runtime_param = lambda conversion=conversion: conversion
    return parameters
