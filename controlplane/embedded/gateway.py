"""Runs the gateway as a child process: its settings, its address and its readiness."""

import os
import socket
from collections.abc import Mapping
from typing import Final

from controlplane.embedded.binaries import gateway_command
from controlplane.embedded.children import keep_running
from controlplane.embedded.readiness import ready
from controlplane.embedded.up_error import UpError
from controlplane.settings import Listen

DRAIN_MS: Final = 5_000


class Gateway:
    """Keeps one gateway running."""

    def __init__(self, listen: Listen, settings: Mapping[str, str], tls_listen: Listen | None = None) -> None:
        self._command = gateway_command()
        self._environ = {**os.environ, **{f"ROLLBOX_GATEWAY_{name}": value for name, value in settings.items()}}
        self._was_ready = False
        # The address for clients on this machine: a wildcard is an address to listen on, not to connect to.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104 - only compared
        self.url = f"http://[{host}]:{listen.port}" if ":" in host else f"http://{host}:{listen.port}"
        self._options = {"--listen": listen, **({} if tls_listen is None else {"--tls-listen": tls_listen})}

    def check_free(self) -> None:
        """Checks that its addresses can be bound, before anything is started.

        Raises:
            UpError: it cannot.
        """
        for option, listen in self._options.items():
            family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
            with socket.socket(family) as attempt:
                attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    attempt.bind((listen.host, listen.port))
                except OSError as error:
                    raise UpError(f"cannot listen on {listen}: {error.strerror}", f"Give another {option}.") from error

    async def run(self) -> None:
        """Keeps the gateway running until cancelled.

        Raises:
            UpError: it exited before it was ready for the first time.
        """
        await keep_running("the gateway", self._command, self._environ, lambda: self._was_ready)

    async def ready(self) -> None:
        """Returns when the gateway accepts calls.

        Raises:
            UpError: it does not in time.
        """
        await ready("the gateway", self.url)
        self._was_ready = True
