"""The other way to a sandbox: through a gateway, as its users go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, Self

import aiohttp

# A gateway waits 15 s for the sidecar's answer.
WITHIN_S: Final = 25.0
# What a gateway answers when the sidecar does not: not reached, or reached and silent.
_SILENT: Final = frozenset({"sandbox_unreachable", "upstream_timeout"})


class HttpGateways:
    """Whatever gateway is behind one address; see ``Gateways``."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url.rstrip("/")

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Self]:
        """A client of the gateways at this address while the block runs; opens connections as it needs them."""
        # Each question to any gateway behind the address, not always to the one that was asked first.
        connector = aiohttp.TCPConnector(force_close=True)
        limits = aiohttp.ClientTimeout(total=WITHIN_S)
        async with aiohttp.ClientSession(connector=connector, timeout=limits) as http:
            yield cls(http, url)

    async def reaches(self, sandbox_id: str, token: str) -> bool | None:
        """See ``Gateways.reaches``. Asks what it uses, which counts as no use of it."""
        headers = {"Authorization": f"Bearer {token}"}
        try:
            async with self._http.get(f"{self._url}/v1/sandboxes/{sandbox_id}/usage", headers=headers) as answer:
                if answer.status == HTTPStatus.OK:
                    return True
                problem = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, ValueError):
            return None
        silent = isinstance(problem, dict) and problem.get("code") in _SILENT
        return False if silent else None


class NoGateways:
    """Where no gateway is known: nothing is ever seen from there."""

    async def reaches(self, sandbox_id: str, token: str) -> bool | None:
        """See ``Gateways.reaches``."""
        del sandbox_id, token
        return None
