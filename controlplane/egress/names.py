"""How hosts, networks and ports are written in a policy; each function raises ``ValueError`` with a rule for people."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final

MOST_HOST: Final = 253
ANY_HOST: Final = "*"
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_PORTS: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
# What the resolvers of C libraries take for a part of an address: `127.1`, `0x7f.1`, `2130706433`.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
LAST_PORT: Final = 65_535

Ports = tuple[tuple[int, int], ...]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def host(text: str) -> str:
    """A host name in lower case without a trailing dot: ``example.org``, ``*.example.org`` or ``*``.

    Raises:
        ValueError: it is none.
    """
    name = text.lower().removesuffix(".")
    if name == ANY_HOST:
        return name
    bare = name.removeprefix("*.")
    if not bare.isascii():
        raise ValueError(f"host {text[:80]!r} must be written in ASCII, as xn--... (its A-label)")
    if "*" in bare:
        raise ValueError(f"host {text[:80]!r} may have `*` as its first label alone, like `*.example.org`")
    labels = bare.split(".")
    if len(name) > MOST_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"host {text[:80]!r} is not a host name, like `example.org` or `*.example.org`")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError(f"host {text[:80]!r} looks like an address: write it as `cidr`")
    return name


def cidr(text: str) -> str:
    """A network in its usual form; an address alone is the network of that address.

    Raises:
        ValueError: it is none, or IPv4 in the form of IPv6.
    """
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"cidr {text[:80]!r} is not a network, like `203.0.113.0/24`: {error}") from error
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError(f"cidr {text[:80]!r} must be written as IPv4")
    return str(network)


def never_reached(text: str) -> bool:
    """Whether nobody can allow this network: this machine's own, link-local, multicast, unspecified or reserved."""
    network = ipaddress.ip_network(text)
    # `0.0.0.0/0` overlaps these and has more: it is meant for the rest.
    return any(network.version == one.version and network.subnet_of(one) for one in _NEVER)  # type: ignore[arg-type]


_NEVER: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(one)
    for one in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "fe80::/10", "ff00::/8")
)


def ports(given: Iterable[int | str]) -> Ports:
    """Ranges of ports in order, merged; each is a number or ``FIRST-LAST``.

    Raises:
        ValueError: one is neither.
    """
    return _merged(sorted(_range(one) for one in given))


def _range(given: int | str) -> tuple[int, int]:
    if isinstance(given, int):
        first = last = given
    elif found := _PORTS.fullmatch(given):
        first, last = int(found[1]), int(found[2])
    else:
        raise ValueError(f"port {given[:20]!r} must be a number, or a range like '8000-8099'")
    if not 1 <= first <= last <= LAST_PORT:
        raise ValueError(f"port {given!r} must be from 1 to {LAST_PORT}, the smaller one first")
    return first, last


def _merged(ranges: Sequence[tuple[int, int]]) -> Ports:
    merged: list[tuple[int, int]] = []
    for first, last in ranges:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return tuple(merged)
