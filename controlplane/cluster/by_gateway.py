"""Probes a sandbox through a gateway, the path that callers use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, Self

import aiohttp

# Timeout; longer than the 15 s that a gateway waits for the sidecar's answer.
WITHIN_S: Final = 25.0
# The gateway's error codes for a sidecar that it cannot reach, or that does not answer.
_SILENT: Final = frozenset({"sandbox_unreachable", "upstream_timeout"})


class HttpGateways:
    """The gateways behind one address (a Service); see ``Gateways``."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url.rstrip("/")

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Self]:
        """A client of the gateways at this address while the block runs; connects when needed."""
        # No keep-alive: a new connection for each probe, so that the Service chooses any gateway and not always the
        # same.
        connector = aiohttp.TCPConnector(force_close=True)
        limits = aiohttp.ClientTimeout(total=WITHIN_S)
        async with aiohttp.ClientSession(connector=connector, timeout=limits) as http:
            yield cls(http, url)

    async def reaches(self, sandbox_id: str, token: str) -> bool | None:
        """See ``Gateways.reaches``. Requests the sandbox's usage, which does not count as activity of the sandbox."""
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
    """For installations where no gateway is configured: every probe is inconclusive."""

    async def reaches(self, sandbox_id: str, token: str) -> bool | None:
        """See ``Gateways.reaches``."""
        del sandbox_id, token
        return None
