"""What a fault is, and what goes on while one lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.observability.firing.site import Site

SMALL: dict[str, Any] = {"cpu": (0.001, 1), "memory": ("32Mi", "128Mi"), "lease": None}

Injected = AbstractAsyncContextManager[None]


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        words: what is done, for the table.
        alerts: those that it must fire.
        inject: while its block runs, the fault is there.
    """

    words: str
    alerts: tuple[str, ...]
    inject: Callable[[Site], Injected]


@asynccontextmanager
async def beside(going_on: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Something that is done again and again while the block runs; its last round is not cut off."""
    over = asyncio.Event()

    async def rounds() -> None:
        while not over.is_set():
            await going_on()

    task = asyncio.create_task(rounds())
    try:
        yield
    finally:
        over.set()
        await task
