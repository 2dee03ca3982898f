"""A hook's pod is restricted by no policy: what it sees, compared with what a sandbox beside it sees."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.reach import attempts, verdict
from controlplane.reach.attempts import Seen
from controlplane.reach.ways import Way, everywhere

from .api import HookError

RISK = "or accept the risk that sandboxes reach your network: networkPolicies.acceptUnenforced=true"


def closed(*others: Way) -> list[Way]:
    """What a sandbox must not reach: what every cluster has, and ``others``."""
    api = Way("API server", os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]))
    return [api, *everywhere(name_server=name_server(Path("/etc/resolv.conf").read_text())), *others]


def name_server(resolver: str) -> str:
    """The first in a resolver's settings; empty: there is none."""
    words = (line.split() for line in resolver.splitlines())
    return next((line[1] for line in words if line[:1] == ["nameserver"] and line[1:]), "")


def isolation(
    ways: Sequence[Way], inside: Mapping[str, Seen], *, accepted: bool, known: Mapping[str, Seen] | None = None
) -> str:
    """What the sandbox saw, and what follows.

    Args:
        ways: what was tried, with the addresses that were meant.
        inside: what the sandbox saw.
        accepted: the risk is, so that it only gets a warning.
        known: what an unrestricted pod sees, where this one need not try.

    Raises:
        HookError: sandboxes are not isolated, or do not work.
    Cost: 5 s, for what is silent.
    """
    outside = dict(known or {})
    outside |= attempts.look([way.from_outside() for way in ways if way.name not in outside])
    verdicts = verdict.judged(ways, inside, outside)
    came = verdict.concluded(verdicts)
    details = "".join(f"\n  {line}" for line in verdict.lines(verdicts))
    if came.isolated:
        return f"{came.sentence}{details}"
    if accepted and came.works:
        return f"WARNING: {came.sentence}; networkPolicies.acceptUnenforced accepts the risk{details}"
    raise HookError(f"{came.sentence}. {came.fix}{f', {RISK}' if came.works else ''}.{details}")
