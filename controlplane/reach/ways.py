"""The destinations that a sandbox tries to reach in the network check. Pure."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal, Self

# An address that answers everywhere on the internet; a connection is opened, and nothing is sent.
INTERNET: Final = ("1.1.1.1", 443)
# The metadata service of clouds, which gives a machine its credentials.
METADATA: Final = ("169.254.169.254", 80)
KUBELET_PORT: Final = 10250
READY: Final = "readiness port"
# Kubernetes replaces this in a pod's command line with the environment variable HOST_IP.
OWN_NODE: Final = "$(HOST_IP)"


@dataclass(frozen=True, slots=True)
class Way:
    """One destination of the network check.

    Attributes:
        name: a name for users; unique among the destinations that are tried together.
        host: an IP address, since a sandbox has no DNS. ``OWN_NODE``: the address of the sandbox's node.
        kind: ``tcp``: a connection is opened; ``dns``: a query is sent to a name server over UDP.
        must_work: whether the platform needs it; all others must be unreachable.
        retry_for_s: how long to retry while the result is not the expected one: a new policy, and the identity of a new
            pod, take effect on the nodes with a delay.
    """

    name: str
    host: str
    port: int
    kind: Literal["tcp", "dns"] = "tcp"
    must_work: bool = False
    retry_for_s: float = 0.0

    def of_node(self, address: str) -> Self:
        """The same with the address of the sandbox's node in the place of ``OWN_NODE``."""
        return replace(self, host=address) if self.host == OWN_NODE else self

    def from_outside(self) -> Self:
        """The same as an unrestricted pod tries it, which must reach it."""
        return replace(self, must_work=True, retry_for_s=0.0)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def everywhere(*, name_server: str) -> list[Way]:
    """The destinations that must be unreachable on every cluster.

    Args:
        name_server: the address of the cluster's DNS; empty: there is none.
    """
    servers = [Way("cluster DNS", name_server, 53, "dns")] if name_server else []
    return [
        Way("kubelet of its node", OWN_NODE, KUBELET_PORT),
        Way("metadata service", *METADATA),
        *servers,
        Way("internet", *INTERNET),
    ]


def dumped(ways: Iterable[Way]) -> str:
    """The destinations as an argument of ``python3 -m controlplane.reach``."""
    return json.dumps([asdict(way) for way in ways])


def loaded(text: str) -> list[Way]:
    """Reads what ``dumped`` wrote."""
    return [Way(**one) for one in json.loads(text)]
