"""Direct networks: what a sandbox reaches by itself. The chart has their rules; here is who may ask for one. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from controlplane.egress.policy import PresetName
from controlplane.errors import Problem


class DirectNetwork(BaseModel):
    """One network, as the chart tells the control plane of it.

    Attributes:
        owners: who may have it; empty: everybody.
        addresses: it has rules for addresses, which a NetworkPolicy enforces.
        names: it has rules for host names, which only Cilium enforces.
        resolvers: what resolves these names; empty: the cluster's DNS.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    owners: list[str] = Field(default_factory=list)
    addresses: bool
    names: bool
    resolvers: list[str] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DirectNetworks:
    """Those of an installation, by name; usually none."""

    by_name: Mapping[str, DirectNetwork] = field(default_factory=dict)

    def check(self, owner: str, name: str) -> None:
        """Refuses a network that there is not, or that is not this owner's. Cost: no call.

        Raises:
            Problem: unsupported, permission_denied.
        """
        for refusal in self.refused(owner, name):
            raise refusal

    def refused(self, owner: str, name: str) -> Sequence[Problem]:
        """Why ``check`` refuses it; empty: it does not."""
        if not name:
            return ()
        if (network := self.by_name.get(name)) is None:
            known = ", ".join(sorted(self.by_name)) or "none"
            detail = (
                f"there is no direct network {name} here: the installation has {known} (egress.direct of the chart)"
            )
            return (Problem("unsupported", detail, option="network"),)
        if network.owners and owner not in network.owners:
            detail = (
                f"the direct network {name} is not for {owner}: an operator may add it (egress.direct of the chart)"
            )
            return (Problem("permission_denied", detail, option="network"),)
        return ()


NO_NETWORKS: Final = DirectNetworks()
_FILE: Final = TypeAdapter(dict[PresetName, DirectNetwork])


def read_networks(text: str) -> DirectNetworks:
    """Reads the chart's file: a JSON object of networks by name.

    Raises:
        ValueError: it is none.
    """
    try:
        return DirectNetworks(_FILE.validate_python(json.loads(text)))
    except json.JSONDecodeError as error:
        raise ValueError(f"must hold JSON: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"must hold networks by name: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
