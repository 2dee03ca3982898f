"""A network policy of verifiers as one of rollbox. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from verifiers.v1.configs.runtime import NetworkPolicyConfig, parse_network_rule

from rollbox import EgressPolicy, EgressRule

ALL = "*"
# Setup, and what is unrestricted: everything that the installation lets out.
OPEN = EgressPolicy(mode="open")
NOTHING = EgressPolicy(mode="none")


def policy(network: NetworkPolicyConfig, routes: Iterable[str]) -> EgressPolicy:
    """Say what a sandbox may reach while the agent runs.

    Args:
        network: what it is to be held to.
        routes: URLs of the framework, which stay within reach.

    Raises:
        ValueError: a rule is none that can be held; the message names it.
    """
    if network.allow == [ALL]:
        return EgressPolicy(mode="deny", deny=_denied(network.block)) if network.block else OPEN
    allowed = [*_allowed(routes), *_allowed(network.allow)]
    return EgressPolicy(mode="allow", allow=list(dict.fromkeys(allowed))) if allowed else NOTHING


def _allowed(rules: Iterable[str]) -> list[EgressRule]:
    return [_rule(rule) for rule in rules]


def _denied(rules: Iterable[str]) -> list[EgressRule]:
    """A bare domain has those below it too; one that begins with `*.` has them alone."""
    denied = []
    for one in map(_rule, rules):
        denied.append(one)
        if one.host is not None and not one.host.startswith(ALL):
            denied.append(EgressRule(host=f"*.{one.host}", ports=one.ports))
    return denied


def _rule(text: str) -> EgressRule:
    if (network := _network(text)) is not None:
        return EgressRule(cidr=network)
    try:
        _, host, port = parse_network_rule(text)
    except ValueError as error:
        raise ValueError(f"the network rule {text!r} has no host and port: {error}") from error
    ports = () if port is None else (port,)
    if (network := _network(host)) is not None:
        return EgressRule(cidr=network, ports=ports)
    if not host or any(letter in host.removeprefix("*.") for letter in "*?["):
        raise ValueError(f"the network rule {text!r} is no host, *.domain, address or network: no other can be held")
    return EgressRule(host=host, ports=ports)


def _network(text: str) -> str | None:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return None
