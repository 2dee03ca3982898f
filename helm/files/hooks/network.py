"""Compares the network of a sandbox with that of the hook's own pod, which no policy restricts."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.reach import attempts, verdict
from controlplane.reach.attempts import Seen
from controlplane.reach.ways import Way, everywhere

from .api import HookError

RISK = "or accept the risk that sandboxes reach your network: networkPolicies.acceptUnenforced=true"


def closed(*others: Way) -> list[Way]:
    """The destinations that a sandbox must not reach: those of every cluster, and ``others``."""
    api = Way("API server", os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]))
    return [api, *everywhere(name_server=name_server(Path("/etc/resolv.conf").read_text())), *others]


def name_server(resolver: str) -> str:
    """The first name server in the text of a resolv.conf; empty: there is none."""
    words = (line.split() for line in resolver.splitlines())
    return next((line[1] for line in words if line[:1] == ["nameserver"] and line[1:]), "")


def isolation(
    ways: Sequence[Way], inside: Mapping[str, Seen], *, accepted: bool, known: Mapping[str, Seen] | None = None
) -> str:
    """Compares the results; returns the conclusion and its details.

    Args:
        ways: the destinations that the sandbox tried.
        inside: the sandbox's results.
        accepted: whether missing isolation is accepted, so that it is only a warning.
        known: results of an unrestricted pod that are known already; this pod does not try these destinations.

    Raises:
        HookError: sandboxes are not isolated, or cannot work.

    Cost: 5 s, the timeout for destinations that do not answer.
    """
    outside = dict(known or {})
    outside |= attempts.try_all([way.from_outside() for way in ways if way.name not in outside])
    verdicts = verdict.judged(ways, inside, outside)
    came = verdict.concluded(verdicts)
    details = "".join(f"\n  {line}" for line in verdict.lines(verdicts))
    if came.isolated:
        return f"{came.sentence}{details}"
    if accepted and came.works:
        return f"WARNING: {came.sentence}; networkPolicies.acceptUnenforced accepts the risk{details}"
    raise HookError(f"{came.sentence}. {came.fix}{f', {RISK}' if came.works else ''}.{details}")
