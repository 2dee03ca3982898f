"""What each control plane knows by itself: a gateway has few connections to them, and all may lead to one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from rollbox import Client
from tests.support.stack import Product

_T = TypeVar("_T")


async def of_each(stack: Product, look: Callable[[Client], Awaitable[_T]]) -> list[_T]:
    """What a look at each replica shows, past the gateways."""
    urls = await stack.controlplanes()
    assert urls, "no replica is there to be asked"
    seen: list[_T] = []
    for url in urls:
        async with Client(url, stack.api_key) as replica:
            seen.append(await look(replica))
    return seen
