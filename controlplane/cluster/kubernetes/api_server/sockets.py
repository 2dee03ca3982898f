"""The sockets of a client's connections: which of them are still open when the client ends."""

import asyncio
import socket
from typing import Final
from weakref import WeakSet

from aiohappyeyeballs import AddrInfoType

# A server answers the end of a TLS connection at once; one that does not is not waited for.
GONE_WITHIN_S: Final = 1.0
LOOK_EVERY_S: Final = 0.01


class Sockets:
    """Makes the sockets of a connector.

    A call that is cancelled before its answer closes its connection behind the connector's back, and a TLS connection
    is closed only when the server has answered its end. An event loop that ends earlier leaves the socket open.
    """

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: AddrInfoType) -> socket.socket:
        """A socket for a connection to this address."""
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def gone(self) -> None:
        """Waits until all of them are closed, for a second at most. Call it when the connector is closed."""
        ends = asyncio.get_running_loop().time() + GONE_WITHIN_S
        # Sockets tell nobody that they are closed.
        while any(one.fileno() >= 0 for one in self._made) and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY_S)
