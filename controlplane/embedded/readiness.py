"""Waits until a child process of ``rollbox up`` says that it is ready."""

import asyncio
from http import HTTPStatus
from typing import Final

import aiohttp

from controlplane.embedded.up_error import UpError

READY_WITHIN_S: Final = 20.0
LOOK_EVERY_S: Final = 0.02


async def ready(name: str, url: str, connector: aiohttp.BaseConnector | None = None) -> None:
    """Returns when a child answers ``/readyz`` with 200.

    Args:
        name: of the child, for the message.
        url: of the child, without a path.
        connector: how it is reached, if not by the address in ``url``; it is closed.

    Raises:
        UpError: it does not within ``READY_WITHIN_S``.
    """
    last = "nothing listens"
    try:
        async with asyncio.timeout(READY_WITHIN_S), aiohttp.ClientSession(connector=connector) as session:
            # Polled, since the child has no way to report that it is ready.
            while last := await _unready(session, url):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError as error:
        raise UpError(f"{name} is not ready after {READY_WITHIN_S:.0f} s: {last}", "Look at its log above.") from error


async def _unready(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(f"{url}/readyz") as answer:
            return "" if answer.status == HTTPStatus.OK else f"/readyz answers {answer.status}"
    except aiohttp.ClientError as error:
        return str(error)
