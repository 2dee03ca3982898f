"""Whether a create without room is refused for good or has to wait, and the texts of the errors. Pure."""

from collections.abc import Mapping
from typing import Final

from controlplane.errors import Problem
from controlplane.lifecycle.waiting.told import LONGEST_RETRY_MS, Position
from controlplane.model import RESOURCES, Limits, Quota, Sandbox, SandboxSpec, Usage
from controlplane.model.units import size
from controlplane.store import Full

TOTAL: Final = "total"
TOTAL_KNOB: Final = "controlplane.maxSandboxes of the chart (rollbox up: ROLLBOX_CONTROLPLANE_MAX_SANDBOXES)"
# The command line option of each field of a quota.
OPTIONS: Final[Mapping[str, str]] = {
    "sandboxes": "--sandboxes",
    "cpu_millicores": "--cpu",
    "memory_bytes": "--memory",
    "gpu": "--gpu",
    "starting": "--starting",
}
_WORDS: Final = {
    "sandboxes": ("sandbox", "sandboxes"),
    "gpu": ("GPU", "GPUs"),
    "starting": ("start in flight", "starts in flight"),
}


def needs(spec: SandboxSpec) -> Usage:
    """What one sandbox uses from its admission on."""
    return Usage(1, spec.cpu_millicores.request, spec.memory_bytes.request, spec.gpu, starting=1)


def knob(owner: str, resource: str) -> str:
    """The command by which an operator raises this limit."""
    return f"rollbox quota set {owner} {OPTIONS[resource]} N"


def share(used: Usage, limits: Limits) -> float:
    """The largest fraction of any of its limits that an owner uses; 0 without limits.

    Starts in flight are left out: they show how busy an owner is, not how much it holds.
    """
    parts = [0.0]
    for name in RESOURCES:
        limit = getattr(limits.quota, name)
        if limit and name != "starting":
            parts.append(getattr(used, name) / limit)
    if limits.total:
        parts.append(used.sandboxes / limits.total)
    return max(parts)


def refuse_for_good(owner: str, need: Usage, quota: Quota) -> None:
    """Refuses what exceeds this owner's quota even when the owner uses nothing else.

    Raises:
        Problem: quota_exceeded, with the limit, what is needed, the owner and the command that raises the limit.
    """
    resource = Usage().excess(need, quota)
    if resource is None:
        return
    limit, wanted = getattr(quota, resource), getattr(need, resource)
    detail = (
        f"this needs {amount(resource, wanted)}, and the quota of {owner} is {amount(resource, limit)}: waiting does "
        f"not help; an operator raises it with `{knob(owner, resource)}`"
    )
    facts = {"resource": resource, "limit": limit, "needed": wanted, "owner": owner, "knob": knob(owner, resource)}
    raise Problem("quota_exceeded", detail, for_good="true", **facts)


def waited_out(wish: Sandbox, full: Full, place: Position, waited_ms: int) -> Problem:
    """The error of a create that has waited until its deadline.

    Args:
        wish: what was asked for.
        full: the store's last answer.
        place: among its owner's creates at this replica.
        waited_ms: how long it has waited.
    """
    owner, used, limit, resource = wish.owner, full.used, full.limit, full.resource
    facts: dict[str, object] = {"used": used, "limit": limit, "owner": owner, "resource": resource}
    facts |= {"position": place.position, "waiting": place.waiting, "waited_ms": waited_ms}
    if place.estimate_ms is not None:
        facts["estimate_ms"] = place.estimate_ms
    among, retry_ms = place.among("quota", over=True), place.retry_after_ms
    if resource == TOTAL:
        detail = f"{used} of at most {limit} sandboxes are in use here ({TOTAL_KNOB}); {among}"
        return Problem("capacity_unavailable", detail, retry_after_ms=retry_ms, knob=TOTAL_KNOB, **facts)
    turn = knob(owner, resource)
    if resource == "starting":
        has, helps = f"{owner} has {used} of {amount(resource, limit)}", "start fewer at once"
    else:
        needed = amount(resource, getattr(needs(wish.spec), resource))
        has = f"{owner} uses {amount(resource, used)} of {amount(resource, limit)}, and this needs {needed}"
        helps = "delete sandboxes"
    detail = f"{has}; {among}; {helps}, or an operator raises the limit with `{turn}`"
    return Problem("quota_exceeded", detail, retry_after_ms=retry_ms, for_good="false", knob=turn, **facts)


def too_many_wait(owner: str, most: int) -> Problem:
    """The error of a create when too many of its owner's wait at this replica already."""
    detail = f"{most} creates of {owner} wait here already; no more are taken until some have had their turn"
    return Problem("rate_limited", detail, retry_after_ms=LONGEST_RETRY_MS // 10, owner=owner, waiting=most)


def amount(resource: str, value: int) -> str:
    """An amount of a resource, with its unit, for people."""
    if resource == "cpu_millicores":
        return f"{value / 1000:g} " + ("core" if value == 1000 else "cores")
    if resource == "memory_bytes":
        return f"{size(value)} of memory"
    one, more = _WORDS[resource]
    return f"{value} {one if value == 1 else more}"
