"""An API server that is away: told once when it goes and once when it is back, however many calls fail meanwhile."""

import time

import structlog


class Outage:
    """Hears of every call, and says what has changed."""

    def __init__(self, url: str) -> None:
        self._since_s: float | None = None
        self._failed = 0
        self._log = structlog.get_logger("kubernetes").bind(api_server=url)

    def failed(self, detail: str) -> None:
        """A call got no answer."""
        self._failed += 1
        if self._since_s is None:
            self._since_s = time.monotonic()
            self._log.warning("the API server does not answer", detail=detail)

    def answered(self) -> None:
        """A call got one, whatever it says."""
        if self._since_s is not None:
            away_s = round(time.monotonic() - self._since_s, 1)
            self._log.warning("the API server answers again", away_s=away_s, calls_failed=self._failed)
            self._since_s, self._failed = None, 0
