"""Runs the gateway as a child process: its settings, its address and its readiness."""

import asyncio
import os
import socket
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import aiohttp

from controlplane.embedded.binaries import gateway_command
from controlplane.embedded.children import keep_running
from controlplane.embedded.trouble import TroubleError
from controlplane.settings import Listen

READY_WITHIN_S: Final = 20.0
LOOK_EVERY_S: Final = 0.02
DRAIN_MS: Final = 5_000


class Gateway:
    """Keeps one gateway running."""

    def __init__(self, listen: Listen, settings: Mapping[str, str]) -> None:
        self._command = gateway_command()
        self._environ = {**os.environ, **{f"ROLLBOX_GATEWAY_{name}": value for name, value in settings.items()}}
        self._was_ready = False
        # The address for clients on this machine: a wildcard is an address to listen on, not to connect to.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104 - only compared
        self.url = f"http://[{host}]:{listen.port}" if ":" in host else f"http://{host}:{listen.port}"
        self._listen = listen

    def check_free(self) -> None:
        """Checks that the address can be bound, before anything is started.

        Raises:
            TroubleError: it cannot.
        """
        family = socket.AF_INET6 if ":" in self._listen.host else socket.AF_INET
        with socket.socket(family) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((self._listen.host, self._listen.port))
            except OSError as error:
                raise TroubleError(
                    f"cannot listen on {self._listen}: {error.strerror}", "Give another --listen."
                ) from error

    async def run(self) -> None:
        """Keeps the gateway running until cancelled.

        Raises:
            TroubleError: it exited before it was ready for the first time.
        """
        await keep_running("the gateway", self._command, self._environ, lambda: self._was_ready)

    async def ready(self) -> None:
        """Returns when the gateway accepts calls.

        Raises:
            TroubleError: it does not within ``READY_WITHIN_S``.
        """
        last = "nothing listens"
        try:
            async with asyncio.timeout(READY_WITHIN_S), aiohttp.ClientSession() as session:
                # Polled, since the child has no way to report that it is ready.
                while last := await self._unready(session):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError as error:
            raise TroubleError(
                f"the gateway is not ready after {READY_WITHIN_S:.0f} s: {last}", "Look at its log above."
            ) from error
        self._was_ready = True

    async def _unready(self, session: aiohttp.ClientSession) -> str:
        try:
            async with session.get(f"{self.url}/readyz") as answer:
                return "" if answer.status == HTTPStatus.OK else f"/readyz answers {answer.status}"
        except aiohttp.ClientError as error:
            return str(error)
