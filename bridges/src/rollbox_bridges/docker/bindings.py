"""Published ports. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from rollbox_bridges.docker.words import Refusal, not_honoured

_PORT: Final = re.compile(r"(\d{1,5})(?:/(\w+))?")
_HOST_PORT: Final = re.compile(r"[0-9]{1,5}")
_MOST_PORT: Final = 65_535
_LOOPBACK: Final = "127.0.0.1"


class Binding(NamedTuple):
    """A port of a container that is reached by one of this machine.

    Attributes:
        port: of the container.
        address: of this machine; what is asked for, else loopback alone.
        host_port: of this machine; 0: any.
    """

    port: int
    address: str
    host_port: int


def bindings_of(asked: Any) -> tuple[Binding, ...]:  # noqa: ANN401 - JSON
    """Read `PortBindings`.

    Raises:
        Refusal: they are malformed, or not of TCP.
    """
    return () if asked is None else tuple(one for port, places in _items(asked) for one in _of_port(port, places))


def exposed_of(asked: Any) -> tuple[str, ...]:  # noqa: ANN401 - JSON
    """Read `ExposedPorts`.

    Raises:
        Refusal: they are malformed.
    """
    return () if asked is None else tuple(port for port, _ in _items(asked))


def published_of(bound: Iterable[Binding], exposed: Iterable[str], *, publish_all: bool) -> tuple[Binding, ...]:
    """Those ports that are published.

    Args:
        bound: by `PortBindings`.
        exposed: of the image and of the create.
        publish_all: whether all of these are.

    Raises:
        Refusal: one of them is malformed, or not of TCP.
    """
    wanted = list(bound)
    if publish_all:
        named = {one.port for one in wanted}
        ports = dict.fromkeys(_port(port) for port in exposed)
        wanted += [Binding(port, _LOOPBACK, 0) for port in ports if port not in named]
    return tuple(wanted)


def told(bindings: Iterable[tuple[Binding, int]]) -> dict[str, list[dict[str, str]]]:
    """Ports in the form of `NetworkSettings.Ports`, each with the port of this machine that it got."""
    ports: dict[str, list[dict[str, str]]] = {}
    for binding, host_port in bindings:
        ports.setdefault(f"{binding.port}/tcp", []).append({"HostIp": binding.address, "HostPort": str(host_port)})
    return ports


def _items(value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - JSON
    if not isinstance(value, dict):
        raise Refusal(400, f"{value!r} is not an object of ports")
    return list(value.items())


def _of_port(text: str, places: Any) -> list[Binding]:  # noqa: ANN401 - JSON
    port = _port(text)
    if not places:
        return [Binding(port, _LOOPBACK, 0)]
    if not isinstance(places, list) or not all(isinstance(one, dict) for one in places):
        raise Refusal(400, f"PortBindings[{text!r}] is not a list of addresses")
    return [Binding(port, _address(one.get("HostIp")), _host_port(one.get("HostPort"))) for one in places]


def _port(text: str) -> int:
    found = _PORT.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= _MOST_PORT:
        raise Refusal(400, f"invalid port specification: {text[:40]!r}")
    if (found[2] or "tcp") != "tcp":
        raise not_honoured(f"publishing port {text}", "TCP alone is published")
    return int(found[1])


def _host_port(value: Any) -> int:  # noqa: ANN401 - JSON
    text = str(value or "0")
    if not _HOST_PORT.fullmatch(text) or int(text) > _MOST_PORT:
        raise not_honoured(f"HostPort {text[:40]!r}", "it is one port, or 0 for any")
    return int(text)


def _address(value: Any) -> str:  # noqa: ANN401 - JSON
    if not value:
        return _LOOPBACK
    try:
        return str(ipaddress.ip_address(value))
    except ValueError as error:
        raise Refusal(400, f"HostIp {value!r} is no address: {error}") from error
