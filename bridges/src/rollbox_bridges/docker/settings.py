"""What an operator says of a bridge. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEFAULT_TTL_S: Final = 24 * 3600.0
DEFAULT_LEASE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one bridge.

    Attributes:
        url: of the gateway; None: as the SDK finds it.
        egress: the network policy of containers on Docker's default network; None: the installation's default.
        ttl_s: seconds after which a container ends, whatever it does.
        lease_s: seconds that containers outlive a bridge that was killed.
        left_out: fields of a create that are left out with a warning, where they would be refused.
    """

    url: str | None = None
    egress: str | None = None
    ttl_s: float = DEFAULT_TTL_S
    lease_s: float = DEFAULT_LEASE_S
    left_out: frozenset[str] = frozenset()


def default_socket(environ: Mapping[str, str], user: int) -> Path:
    """Where the socket is unless told otherwise: in a folder that is this user's alone."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    return (Path(runtime) if runtime else Path(f"/tmp/rollbox-{user}")) / "rollbox-docker.sock"  # noqa: S108 - made with 0700


def socket_of(environ: Mapping[str, str]) -> Path:
    """Where the socket of `DOCKER_HOST` is, or the default one.

    Raises:
        ValueError: DOCKER_HOST is not the address of a Unix socket.
    """
    host = environ.get("DOCKER_HOST", "")
    if not host:
        return default_socket(environ, os.getuid())
    if not host.startswith("unix://"):
        raise ValueError(f"DOCKER_HOST {host!r} does not begin with unix://")
    return Path(host.removeprefix("unix://"))
