"""What a task of Harbor says of its sandbox and of its network, in rollbox's words. Pure."""

from __future__ import annotations

from typing import TypeVar

from harbor.models.task.config import NetworkMode, NetworkPolicy

from rollbox import EgressPolicy, EgressRule
from rollbox.egress import Egress

_Amount = TypeVar("_Amount", float, str)
OPEN = EgressPolicy(mode="open")
OFFLINE = "offline"
# Harbor's lists name hosts, and no ports.
_ALL_PORTS = ("1-65535",)


def egress(policy: NetworkPolicy, public: str | None) -> Egress:
    """Say what a phase may reach.

    Args:
        policy: of the phase.
        public: the preset of phases without a limit; None: everything that the installation lets out.
    """
    if policy.network_mode == NetworkMode.PUBLIC:
        return public or OPEN
    if policy.network_mode == NetworkMode.NO_NETWORK or not policy.allowed_hosts:
        return OFFLINE
    return EgressPolicy(mode="allow", allow=[_rule(entry) for entry in policy.allowed_hosts])


def _rule(entry: str) -> EgressRule:
    """Harbor has looked at the entry: a name, `*.name`, an address or a network."""
    is_network = ":" in entry or "/" in entry or entry.replace(".", "").isdigit()
    return EgressRule(cidr=entry, ports=_ALL_PORTS) if is_network else EgressRule(host=entry, ports=_ALL_PORTS)


def amount(request: _Amount | None, limit: _Amount | None) -> _Amount | tuple[_Amount, _Amount] | None:
    """What `Sandbox.create` takes for a request and a limit, of which either may be None."""
    if request is None:
        return limit
    return (request, request if limit is None else limit)


def mebibytes(count: int | None) -> str | None:
    """Write a size of Harbor's, which is in MiB."""
    return None if count is None else f"{count}Mi"
