"""Logs an outage of the API server once when it begins and once when it ends, however many calls fail meanwhile."""

import asyncio

import structlog


class Outage:
    """Gets the outcome of every call, and logs changes."""

    def __init__(self, url: str) -> None:
        self._since_s: float | None = None
        self._failed = 0
        self._log = structlog.get_logger("kubernetes").bind(api_server=url)

    def failed(self, detail: str) -> None:
        """A call got no answer."""
        self._failed += 1
        if self._since_s is None:
            self._since_s = asyncio.get_running_loop().time()
            self._log.warning("the API server does not answer, calls are retried", detail=detail)

    def answered(self) -> None:
        """A call got an answer, whatever its status."""
        if self._since_s is not None:
            away_s = round(asyncio.get_running_loop().time() - self._since_s, 1)
            self._log.warning("the API server answers again", away_s=away_s, calls_failed=self._failed)
            self._since_s, self._failed = None, 0
