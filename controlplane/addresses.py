"""Addresses that are never called for others: they mean something else on each machine. Pure."""

import ipaddress
from typing import Final

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Metadata services of clouds that are not link-local.
_METADATA: Final = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))


def connected(address: IpAddress) -> IpAddress:
    """What is connected to: one that stands for an IPv4 address is connected to as that."""
    return getattr(address, "ipv4_mapped", None) or address


def never_called(address: IpAddress) -> bool:
    """Whether it is link-local, as most metadata services of clouds, another metadata service, multicast or none."""
    address = connected(address)
    return address.is_link_local or address.is_multicast or address.is_unspecified or address in _METADATA
