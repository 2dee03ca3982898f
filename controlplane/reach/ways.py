"""The ways out of a sandbox that are tried. Pure."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal, Self

# An address that answers on the whole internet; a connection is opened, and nothing is sent.
INTERNET: Final = ("1.1.1.1", 443)
# Where clouds tell a machine its credentials.
METADATA: Final = ("169.254.169.254", 80)
KUBELET_PORT: Final = 10250
READY: Final = "readiness port"
# What Kubernetes makes of the environment in a pod's command line.
OWN_NODE: Final = "$(HOST_IP)"


@dataclass(frozen=True, slots=True)
class Way:
    """One way out of a sandbox.

    Attributes:
        name: of what is there, for people; unique among those that are tried together.
        host: an address; a sandbox resolves no names. ``OWN_NODE``: that of the node that the sandbox is on.
        kind: ``tcp``: a connection is opened; ``dns``: a name server is asked over UDP.
        must_work: the platform needs it; all others must not work.
        patience_s: how long it is tried again while it is not as it should be: policies that are new, or the identity
            of a pod that is, reach the nodes a little later.
    """

    name: str
    host: str
    port: int
    kind: Literal["tcp", "dns"] = "tcp"
    must_work: bool = False
    patience_s: float = 0.0

    def of_node(self, address: str) -> Self:
        """The same, once the sandbox's node is known."""
        return replace(self, host=address) if self.host == OWN_NODE else self

    def from_outside(self) -> Self:
        """The same for an unrestricted pod, to which it is not forbidden."""
        return replace(self, must_work=True, patience_s=0.0)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def everywhere(*, name_server: str) -> list[Way]:
    """What must not work on any cluster, beside what the caller knows.

    Args:
        name_server: the cluster's; empty: there is none.
    """
    servers = [Way("cluster DNS", name_server, 53, "dns")] if name_server else []
    return [
        Way("kubelet of its node", OWN_NODE, KUBELET_PORT),
        Way("metadata service", *METADATA),
        *servers,
        Way("internet", *INTERNET),
    ]


def dumped(ways: Iterable[Way]) -> str:
    """As the argument of ``python3 -m controlplane.reach``."""
    return json.dumps([asdict(way) for way in ways])


def loaded(text: str) -> list[Way]:
    """What ``dumped`` wrote."""
    return [Way(**one) for one in json.loads(text)]
