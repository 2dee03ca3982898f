"""What an operator says of a bridge. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rollbox_bridges.keys import owner_key

ENVD_VERSION: Final = "0.6.1"
"""What clients take as the version of E2B's own program in a sandbox, by which they choose features."""
_HEXADECIMAL: Final = re.compile(r"e2b_((?:[0-9a-fA-F]{2})+)")
DEFAULT_IMAGE: Final = "python:3.12-slim"
DEFAULT_IMAGE_KEY: Final = "rollbox.image"
ENVD_PORT: Final = 49_983
INTERPRETER_PORT: Final = 49_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one bridge.

    Attributes:
        url: of the gateway.
        secret: seals the credentials of sandboxes; the same for all replicas.
        domain: below which sandboxes' ports have host names, `{port}-{id}.{domain}`; None: any, and `localhost` with
            the port of the bridge is told.
        default_image: of the templates that E2B's clients ask for without being told one.
        templates: name -> image.
        image_key: the key of metadata that names the image, for clients that have no other place for it.
        keys: a client's key -> an owner's key of rollbox; empty: they are the same.
        egress: the network policy of sandboxes whose client allows the Internet; None: the installation's default.
        build_egress: the network policy of builds of templates; None: they have no network.
        public_ports: whether ports of a sandbox are open to everybody with its id, as at E2B, or need its credential.
    """

    url: str | None = None
    secret: bytes = field(repr=False)
    domain: str | None = None
    default_image: str = DEFAULT_IMAGE
    templates: Mapping[str, str] = field(default_factory=dict)
    image_key: str = DEFAULT_IMAGE_KEY
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    egress: str | None = None
    build_egress: str | None = None
    public_ports: bool = True

    def owner_key(self, client_key: str) -> str | None:
        """The key of rollbox that a client's key stands for; None: none.

        Some clients take only keys of the form `e2b_` and hexadecimal digits: so a key may be written in those.
        """
        found = None if self.keys else _HEXADECIMAL.fullmatch(client_key)
        return owner_key(client_key if found is None else bytes.fromhex(found[1]).decode("latin-1"), self.keys)
