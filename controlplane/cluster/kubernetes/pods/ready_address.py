"""Resolves the address for readiness pushes, since a sandbox has no DNS."""

import asyncio
import ipaddress
import socket
from typing import Final

from yarl import URL

from controlplane.errors import Problem

# How long a resolved address is cached; a Service keeps its address for as long as it exists.
FRESH_S: Final = 60.0


class ReadyAddress:
    """Resolves the host of ``http://host:port``, with a cache that is also used while DNS fails."""

    def __init__(self, url: str) -> None:
        self._url = URL(url)
        self._known = ""
        self._asked_s = 0.0

    async def url(self) -> str:
        """The URL with an IP address in the place of the host name.

        Raises:
            Problem: internal, if the name cannot be resolved and no address is cached.
        """
        now_s = asyncio.get_running_loop().time()
        if not self._known or now_s - self._asked_s > FRESH_S:
            try:
                self._known = await self._resolve()
            except OSError as error:
                if not self._known:
                    detail = f"the readiness address {self._url} cannot be resolved: {error}"
                    raise Problem("internal", detail) from error
            self._asked_s = now_s
        return self._known

    async def _resolve(self) -> str:
        host, port = self._url.host or "", self._url.port
        try:
            address = str(ipaddress.ip_address(host))
        except ValueError:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            address = str(found[0][4][0])
        return str(self._url.with_host(address)).rstrip("/")
