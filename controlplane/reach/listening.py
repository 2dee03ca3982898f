"""Listening ports that accept connections and send nothing, as destinations for the check."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

# accept() is never called: the kernel completes this many connections by itself, far more than one check opens.
BACKLOG: Final = 256


@contextmanager
def listening(ports: Sequence[int], host: str) -> Iterator[list[int]]:
    """Listens on all ports while the block runs; yields the port numbers.

    Args:
        ports: the port numbers; 0: the kernel chooses one.
        host: the address to bind.

    Raises:
        OSError: a port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        opened = (socket.create_server((host, port), family=family, backlog=BACKLOG) for port in ports)
        yield [stack.enter_context(server).getsockname()[1] for server in opened]
