"""``Addresses``: which agent is on which node, from the EndpointSlices of their Service. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from controlplane.cluster.kubernetes.api_server.client import Json

# Which slices are a Service's.
SERVICE_LABEL: Final = "kubernetes.io/service-name"


class Addresses:
    """A mirror of the slices (see ``Mirror``); an agent that is not ready is none."""

    def __init__(self) -> None:
        self._slices: dict[str, Mapping[str, str]] = {}

    @property
    def by_node(self) -> Mapping[str, str]:
        """Node -> ``host:port`` of its agent."""
        return {node: address for one in self._slices.values() for node, address in one.items()}

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        self._slices = {_name(one): _agents(one) for one in objects}

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        self._slices[_name(thing)] = _agents(thing)

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        self._slices.pop(_name(thing), None)


def _name(thing: Json) -> str:
    return str(thing["metadata"]["name"])


def _agents(thing: Json) -> Mapping[str, str]:
    ports = [int(port["port"]) for port in thing.get("ports") or () if port.get("port")]
    ready = [one for one in thing.get("endpoints") or () if (one.get("conditions") or {}).get("ready") is not False]
    if not ports:
        return {}
    return {
        str(one["nodeName"]): _address(str(one["addresses"][0]), ports[0])
        for one in ready
        if one.get("nodeName") and one.get("addresses")
    }


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
