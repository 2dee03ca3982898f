"""Channels to the programs that look after the private registry, over mutual TLS."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc
from grpc import aio

# A program that is restarted is there again within seconds; the default waits up to two minutes before it looks.
_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # One whose node has gone says nothing.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


@asynccontextmanager
async def channel_to(address: str, tls_folder: Path, name: str) -> AsyncIterator[aio.Channel]:
    """A channel while the block runs; it connects when needed.

    Args:
        address: host and port.
        tls_folder: has ``ca.crt``, ``tls.crt`` and ``tls.key``.
        name: in the server's certificate, whatever address it is reached at.
    """
    credentials = grpc.ssl_channel_credentials(
        root_certificates=(tls_folder / "ca.crt").read_bytes(),
        private_key=(tls_folder / "tls.key").read_bytes(),
        certificate_chain=(tls_folder / "tls.crt").read_bytes(),
    )
    options = (*_OPTIONS, ("grpc.ssl_target_name_override", name))
    async with aio.secure_channel(address, credentials, options=options) as channel:
        yield channel
