"""What an operator says of a bridge. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULT_ARCH: Final = "amd64"
DEFAULT_REGION_LABEL: Final = "topology.kubernetes.io/region"
ARCH_LABEL: Final = "kubernetes.io/arch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one bridge.

    Attributes:
        url: of the gateway of rollbox.
        secret: seals the credentials of sandboxes; the same for all replicas.
        public_url: where clients reach the bridge; None: where the request came to.
        images: what a client calls an image -> the image, for clients that have a name of their own in them.
        keys: a client's key -> an owner's key of rollbox; empty: they are the same.
        egress: the network policy of sandboxes whose client says none; None: the installation's default.
        arch: of the installation's nodes; another one is asked for by the node's label.
        region_label: the label of nodes by which a region is asked for.
        gpu_label: the label of nodes by which a type of GPU is asked for; None: there are no types.
    """

    url: str | None = None
    secret: bytes = field(repr=False)
    public_url: str | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    egress: str | None = None
    arch: str = DEFAULT_ARCH
    region_label: str = DEFAULT_REGION_LABEL
    gpu_label: str | None = None
