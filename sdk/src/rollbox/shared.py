"""The shared client of `Sandbox.create()` and similar calls: one for each event loop, closed by its last user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from rollbox import settings
from rollbox.gateway import Gateway
from rollbox.retry import RetryPolicy


class GatewayOwner(Protocol):
    """What keeps a gateway open for others: `rollbox.Client`."""

    gateway: Gateway


@dataclass(slots=True)
class SameGateway:
    """A client for a further sandbox that lives no longer than one that is there."""

    gateway: Gateway


@dataclass(slots=True)
class _Shared:
    gateway: Gateway
    lifeline: AsyncGenerator[None, None]
    leases: int = 0


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


async def acquire() -> Gateway:
    """Return the gateway of the running loop and count one more user; for the first one the settings are resolved.

    Every user calls `release`; the last one closes the connections, and so does the end of the loop.

    Raises:
        InvalidArgument, Unauthenticated: as `settings.resolve`.
    """
    loop = asyncio.get_running_loop()
    shared = _by_loop.get(loop)
    if shared is None:
        gateway = Gateway(settings.resolve(), RetryPolicy())
        shared = _by_loop[loop] = _Shared(gateway, _until_loop_ends(loop, gateway))
        await anext(shared.lifeline)
    shared.leases += 1
    return shared.gateway


async def gateway_of(client: GatewayOwner | None) -> Gateway:
    """Return the gateway of a client; without one that of the running loop, as `acquire`."""
    return await acquire() if client is None else client.gateway


async def release(gateway: Gateway) -> None:
    """Count one user less. A gateway that is not shared any more (its loop has shut down) is left alone."""
    shared = _by_loop.get(asyncio.get_running_loop())
    if shared is None or shared.gateway is not gateway:
        return
    shared.leases -= 1
    if shared.leases == 0:
        await shared.lifeline.aclose()


async def aclose() -> None:
    """Close the shared client of the running loop, even if it has users left. Idempotent."""
    shared = _by_loop.get(asyncio.get_running_loop())
    if shared is not None:
        await shared.lifeline.aclose()


async def _until_loop_ends(loop: asyncio.AbstractEventLoop, gateway: Gateway) -> AsyncGenerator[None, None]:
    """Close the gateway when this generator is closed.

    A suspended asynchronous generator is the only object that a loop closes before it ends (`shutdown_asyncgens`, part
    of asyncio.run). So a program that keeps a detached sandbox leaves no unclosed aiohttp session.
    """
    try:
        yield
    finally:
        _by_loop.pop(loop, None)
        await gateway.aclose()
