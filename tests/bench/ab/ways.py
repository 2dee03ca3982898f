"""The library's way of each hand-made part: a function that puts it in the place of ours, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import uvicorn

from controlplane.api import app
from tests.bench.ab.redis_client import library_redis


def _routes() -> None:
    """FastAPI answers every request: in the place of ``api/fast_path.py``."""
    vars(app)["FastPath"] = lambda inner, _: inner


def _parser() -> None:
    """The parser of uvicorn in Python, which bounds heads by itself, in the place of ``listeners._Bounded``."""
    made = uvicorn.Config
    vars(uvicorn)["Config"] = lambda *args, **options: partial(made, *args)(**{**options, "http": "h11"})


WAYS: dict[str, Callable[[], None]] = {"redis": library_redis, "routes": _routes, "parser": _parser}
