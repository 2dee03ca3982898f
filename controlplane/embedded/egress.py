"""Runs egress as a child process: its settings and its readiness."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import aiohttp

from controlplane.embedded.binaries import required
from controlplane.embedded.children import keep_running
from controlplane.embedded.readiness import ready
from controlplane.settings import Listen

# Of the relay on each sandbox's loopback.
PORT: Final = 3128
DRAIN_MS: Final = 1_000


class Egress:
    """Keeps one egress running. What else the environment sets for it, as ``ROLLBOX_EGRESS_DNS_SERVERS``, holds."""

    def __init__(self, feed: Listen, key: Path, socket: Path, environ: Mapping[str, str] = os.environ) -> None:
        """Gathers its settings.

        Args:
            feed: where the control plane serves it.
            key: the file of what the feed asks for.
            socket: for metrics and probes.
            environ: of this process.

        Raises:
            UpError: there is no such program.
        """
        self._command = [str(required("egress", environ))]
        ours = {
            "FEED_URL": str(feed),
            "FEED_KEY_FILE": str(key),
            "ID": "local",
            "LISTEN": str(socket),
            "DRAIN_MS": str(DRAIN_MS),
        }
        self._environ = {**environ, **{f"ROLLBOX_EGRESS_{name}": value for name, value in ours.items()}}
        self._socket = socket
        self._was_ready = False

    async def run(self) -> None:
        """Keeps egress running until cancelled.

        Raises:
            UpError: it exited before it was ready for the first time.
        """
        await keep_running("egress", self._command, self._environ, lambda: self._was_ready)

    async def ready(self) -> None:
        """Returns when egress follows the control plane's feed.

        Raises:
            UpError: it does not in time.
        """
        await ready("egress", "http://egress", aiohttp.UnixConnector(str(self._socket)))
        self._was_ready = True
