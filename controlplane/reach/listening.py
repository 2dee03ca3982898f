"""Ports that take connections and say nothing: what a way may lead to."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

# Nobody accepts: the kernel completes that many connections by itself, far more than one look opens.
BACKLOG: Final = 256


@contextmanager
def listening(ports: Sequence[int], host: str) -> Iterator[list[int]]:
    """Listens for the block; yields the ports.

    Args:
        ports: on each one; 0: the kernel chooses.
        host: at this address.

    Raises:
        OSError: one is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        opened = (socket.create_server((host, port), family=family, backlog=BACKLOG) for port in ports)
        yield [stack.enter_context(server).getsockname()[1] for server in opened]
