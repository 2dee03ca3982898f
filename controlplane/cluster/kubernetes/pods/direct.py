"""Direct networks of sandboxes: the label of a pod by which the chart's policies select it, and its resolver. Pure."""

from typing import Any, Final

from controlplane.egress import DirectNetworks

LABEL: Final = "rollbox.dev/network"
Json = dict[str, Any]
# Without search domains, which would be asked for first: Cilium's DNS proxy refuses all names but those of the policy.
_OPTIONS: Final = [{"name": "ndots", "value": "1"}, {"name": "timeout", "value": "1"}]


def labels(network: str) -> Json:
    """Those that a sandbox's pod has for its network."""
    return {LABEL: network} if network else {}


def resolving(networks: DirectNetworks, network: str, without: Json) -> Json:
    """How its pod resolves names: ``without`` where its network has none."""
    found = networks.by_name.get(network)
    if found is None or not found.names:
        return without
    if not found.resolvers:
        return {"dnsPolicy": "ClusterFirst", "dnsConfig": {"options": _OPTIONS}}
    return {"dnsPolicy": "None", "dnsConfig": {"nameservers": found.resolvers, "options": _OPTIONS}}


def judged(policy: Json) -> str:
    """Why nobody enforces a CiliumNetworkPolicy; empty: Cilium has taken it. Definitions may outlive Cilium."""
    conditions = (policy.get("status") or {}).get("conditions") or ()
    valid = next((one for one in conditions if one.get("type") == "Valid"), None)
    if valid is None:
        return "no Cilium has looked at its CiliumNetworkPolicy"
    return "" if valid.get("status") == "True" else f"Cilium refuses its policy: {valid.get('message')}"
