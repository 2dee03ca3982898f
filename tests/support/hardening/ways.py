"""Who reaches a pod, and what it reaches, by the NetworkPolicies that select it; as cells of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tests.support.helm import matches

Json = dict[str, Any]
Cells = tuple[str, ...]
HEAD: Final = ("pod", "listens at", "who comes in", "where it goes", "why")
NONE: Final = "none"
ANY: Final = "anyone"
SIDES: Final = (("Ingress", "ingress", "from"), ("Egress", "egress", "to"))


def row(name: str, forms: Iterable[tuple[str, Json, list[Json]]]) -> Cells:
    """The row of a pod without its last cell.

    Args:
        name: of the pod.
        forms: its namespace, the pod and all manifests beside it, in each form.
    """
    seen = list(forms)
    ports = (f"{one['containerPort']}{_udp(one)}" for _, pod, _ in seen for one in _ports(pod))
    sides = ([one for form in seen for one in _side(*form, side)] for side in SIDES)
    return (name, *(", ".join(dict.fromkeys(one)) or NONE for one in (ports, *sides)))


def _ports(pod: Json) -> Iterator[Json]:
    for container in pod["spec"]["containers"]:
        yield from container.get("ports", ())


def _udp(port: Json) -> str:
    return " UDP" if port.get("protocol") == "UDP" else ""


def _side(namespace: str, pod: Json, manifests: list[Json], side: tuple[str, str, str]) -> Iterator[str]:
    kind, field, peers = side
    if pod["spec"].get("hostNetwork"):
        yield f"{ANY}: no policy holds in the node's network"
        return
    policies = [
        one["spec"]
        for one in manifests
        if one["kind"] == "NetworkPolicy"
        and one["metadata"].get("namespace", "rollbox") == namespace
        and matches(one["spec"]["podSelector"], pod["metadata"]["labels"])
        and kind in one["spec"]["policyTypes"]
    ]
    if not policies:
        yield ANY
    for rule in (rule for one in policies for rule in one.get(field) or ()):
        ports = " ".join(f"{one['port']}{_udp(one)}" for one in rule.get("ports", ())) or "all ports"
        for peer in dict.fromkeys(map(_peer, rule.get(peers) or [{}])):
            yield f"{peer} {ports}"


def _peer(peer: Json) -> str:
    if not peer:
        return ANY
    if "ipBlock" in peer:
        excepted = "0.0.0.0/0" in peer["ipBlock"]["cidr"] or peer["ipBlock"]["cidr"] == "2000::/3"
        return "public addresses" if excepted else f"`{peer['ipBlock']['cidr']}`"
    labels = peer.get("podSelector", {}).get("matchLabels", {})
    if not labels:
        return "`networkPolicies.metricsFrom`"
    own = str(labels["app.kubernetes.io/name"])
    if own == "rollbox":
        return str(labels.get("app.kubernetes.io/component", "the release's pods"))
    return own.removeprefix("rollbox-")
