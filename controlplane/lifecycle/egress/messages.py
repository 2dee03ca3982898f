"""Policies, assignments and attempts as they are on the wire. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from controlplane.egress import NO_LIMITS, OF_REPLICAS, Compiled, CompiledRule, EgressAttempt, OwnerLimits
from controlplane.model import Sandbox
from controlplane.wire import egress_pb2 as wire

_MODES: Final[Mapping[str, wire.Mode]] = {
    "offline": wire.OFFLINE,
    "rules": wire.RULES,
    "open": wire.OPEN,
    "dated": wire.DATED,
}


def digest_for(digest: str, limits: OwnerLimits) -> str:
    """The digest of a policy together with the limits of an owner; its own where there are none."""
    return hashlib.sha256(f"{digest}/{limits.text}".encode()).hexdigest() if limits.text else digest


def policy(digest: str, compiled: Compiled, owner: OwnerLimits = NO_LIMITS) -> wire.Policy:
    """A policy as it is sent.

    Args:
        digest: by which assignments name it.
        compiled: its rules.
        owner: what all its owner's sandboxes may use together.
    """
    return wire.Policy(
        digest=digest,
        name=compiled.name,
        mode=_MODES[compiled.mode],
        allow=[_rule(one) for one in compiled.allow],
        deny=[_rule(one) for one in compiled.deny],
        limits=wire.Limits(**compiled.limits, **_owners(owner)),
        dated=[_rule(one) for one in compiled.dated],
        until=compiled.until,
    )


def assignment(sandbox: Sandbox, token: str, limits: OwnerLimits, *, moved: bool = False) -> wire.Assignment:
    """What an egress replica has to know of a sandbox.

    Args:
        sandbox: which has a policy.
        token: opens its link.
        limits: as for ``policy``.
        moved: whether another replica served it until now.
    """
    return wire.Assignment(
        sandbox_id=sandbox.id,
        address=sandbox.address or "",
        generation=sandbox.generation,
        owner=sandbox.owner,
        token=token,
        policy_digest=digest_for(sandbox.egress.digest, limits),
        revision=sandbox.egress.revision,
        moved=moved,
    )


def attempt(told: wire.Attempt) -> EgressAttempt | None:
    """An attempt as the log keeps it; None: its verdict is one that this version does not know."""
    if not 1 <= told.verdict <= len(OF_REPLICAS):
        return None
    return EgressAttempt.made(
        at_ms=told.at_ms,
        host=told.host,
        port=told.port,
        address=told.address,
        verdict=OF_REPLICAS[told.verdict - 1],
        policy=told.policy,
        rule=told.rule,
        protocol=told.protocol,
        sent_bytes=told.sent_bytes,
        received_bytes=told.received_bytes,
        duration_ms=told.duration_ms,
        count=max(1, told.count),
    )


def _owners(limits: OwnerLimits) -> dict[str, int]:
    return {f"owner_{name}": value for name, value in asdict(limits).items()}


def _rule(rule: CompiledRule) -> wire.Rule:
    ports = [wire.PortRange(first=first, last=last) for first, last in rule.ports]
    return wire.Rule(id=rule.id, host=rule.host, cidr=rule.cidr, ports=ports)
