"""Sandboxes, quotas, pools and waiting creates as rows of tables. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.cluster import SandboxUsage
from controlplane.console.words import cores, duration, number
from controlplane.lifecycle.admission.quotas import QuotaUse
from controlplane.lifecycle.pools import Shown
from controlplane.lifecycle.record.timeline import story
from controlplane.model import Sandbox, State
from controlplane.model.units import size

# Of the labels of one sandbox, and of the creates that wait.
MOST_LABELS: Final = 4
MOST_WAITING: Final = 20
_UNITS: Final = {"cpu_millicores": cores, "memory_bytes": size}
_NAMES: Final = {"cpu_millicores": "cpu", "memory_bytes": "memory", "gpu": "gpu"}


@dataclass(frozen=True, slots=True)
class SandboxRow:
    """One sandbox.

    Attributes:
        phase: what it does within its state, or why it ended.
        fault: of its end, or that it is bad as it is; empty: neither.
        age: since it was asked for, or how long it lived.
        limits: of processor and memory.
        left: until its ttl ends it, or since its end.
        more_labels: how many labels are not shown.
    """

    id: str
    state: str
    phase: str
    fault: str
    age: str
    left: str
    image: str
    limits: str
    labels: Sequence[tuple[str, str]]
    more_labels: int

    @classmethod
    def of(cls, one: Sandbox, now_ms: int, silent_since_ms: int | None = None) -> "SandboxRow":
        """From the record, and since when it has answered no probe (Unix ms)."""
        silent_ms = None if silent_since_ms is None or one.state is not State.RUNNING else now_ms - silent_since_ms
        began_ms = one.claimed_at_ms or one.created_at_ms
        until_ms = now_ms if one.end is None else one.end.at_ms
        left = f"{duration(now_ms - one.end.at_ms)} ago" if one.end else duration(one.expires_at_ms - now_ms)
        labels = list(one.spec.labels.items())
        return cls(
            id=one.id,
            state=one.state,
            phase=phase(one) if silent_ms is None else f"no answer for {duration(silent_ms)}",
            fault=_fault(one) if silent_ms is None else "bad",
            age=duration(until_ms - began_ms),
            left=left,
            image=one.spec.image,
            limits=f"{cores(one.spec.cpu_millicores.limit)} cpu, {size(one.spec.memory_bytes.limit)}",
            labels=labels[:MOST_LABELS],
            more_labels=max(0, len(labels) - MOST_LABELS),
        )


def _fault(one: Sandbox) -> str:
    if one.end is None:
        return ""
    return "normal" if one.end.cause == "deleted" else one.end.fault


def phase(one: Sandbox) -> str:
    """Where a sandbox is within its state, in a few words."""
    if one.end is not None:
        return one.end.cause
    if one.state is State.RUNNING:
        if one.draining_at_ms is not None:
            return "its node is drained"
        if one.warm:
            return f"claimed from {one.pool}"
        return "" if one.ready_at_ms is None else f"ready in {duration(one.ready_at_ms - one.created_at_ms)}"
    return story(one)[-1].text


@dataclass(frozen=True, slots=True)
class Limit:
    """How much of a resource is used; ``share`` in percent of the limit, None: there is no limit."""

    name: str
    used: str
    limit: str
    share: int | None


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """An owner's quota and its use."""

    owner: str
    declared_for: str
    limits: Sequence[Limit]
    waiting: str
    in_all: str
    total: str

    @classmethod
    def of(cls, use: QuotaUse) -> "QuotaRow":
        """From the lifecycle's view."""
        limits = []
        for name in ("sandboxes", "starting", "cpu_millicores", "memory_bytes", "gpu"):
            most = (getattr(use.declared, name) or 0) if use.declared else 0
            used, say = getattr(use.used, name), _UNITS.get(name, number)
            if name == "gpu" and not (used or most):
                continue
            share = min(100, -(-100 * used // most)) if most else None
            limits.append(Limit(_NAMES.get(name, name), say(used), say(most) if most else "", share))
        return cls(
            owner=use.owner,
            declared_for=use.declared.owner if use.declared else "",
            limits=limits,
            waiting=number(use.waiting + len(use.unplaced)),
            in_all=number(use.in_all),
            total=number(use.total) if use.total else "",
        )


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A create that waits for quota, or a start that waits for room on nodes."""

    place: int
    for_what: str
    since: str
    until: str
    estimate: str
    labels: Sequence[tuple[str, str]]
    why: str

    @classmethod
    def all_of(cls, use: QuotaUse, now_ms: int) -> Sequence["WaitingRow"]:
        """The first of an owner's, those that fit on no node before those that no quota lets in."""
        rows = [
            cls(
                place,
                "a node",
                *_times(one.created_at_ms, one.start_by_ms, wait_ms, now_ms),
                _labels(one.spec.labels),
                why.detail,
            )
            for place, (one, why, wait_ms) in enumerate(use.unplaced[:MOST_WAITING], start=1)
        ]
        left = use.places[: MOST_WAITING - len(rows)]
        return rows + [
            cls(
                place,
                "the installation's limit" if one.waits_for == "total" else f"quota: {one.waits_for}",
                *_times(one.since_ms, one.until_ms, one.estimate_ms, now_ms),
                _labels(one.labels),
                f"{number(one.used)} of {number(one.limit)} in use",
            )
            for place, one in enumerate(left, start=len(rows) + 1)
        ]


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool; ``full`` is the share of ready among wanted, in percent."""

    name: str
    ready: str
    starting: str
    outdated: str
    wanted: str
    claims: str
    full: int
    why: str
    paused: str

    @classmethod
    def of(cls, shown: Shown, now_ms: int) -> "PoolRow":
        """From the declaration and the status."""
        status: Mapping[str, object] = shown.status
        ready, wanted = _count(status, "ready"), _count(status, "wanted")
        until_ms = _count(status, "paused_until_ms")
        return cls(
            name=shown.declared.name,
            ready=number(ready),
            starting=number(_count(status, "starting")),
            outdated=number(_count(status, "outdated")),
            wanted=number(wanted),
            claims=number(_count(status, "claimed_per_minute")),
            full=min(100, 100 * ready // wanted) if wanted else 100,
            why=shown.declared.trouble or str(status.get("why") or ""),
            paused=duration(until_ms - now_ms) if until_ms > now_ms else "",
        )


def used(one: SandboxUsage) -> dict[str, object]:
    """What a sandbox uses, for the page's script: ``cpu_ms`` is a number, from whose change it computes a share.

    ``cpu_by_node`` is false where its own kernel has counted; between the two counts there is no share.
    """
    return {
        "cpu_ms": one.cpu_ms,
        "cpu_by_node": one.cpu_by_node,
        "memory": _of(size(one.memory_bytes), one.memory_limit_bytes and size(one.memory_limit_bytes)),
        "disk": ""
        if one.disk_bytes is None
        else _of(size(one.disk_bytes), one.disk_limit_bytes and size(one.disk_limit_bytes)),
        "processes": _of(number(one.processes), one.processes_limit and number(one.processes_limit)),
    }


def _of(used_text: str, limit: object) -> str:
    return f"{used_text} / {limit}" if limit else used_text


def _count(status: Mapping[str, object], name: str) -> int:
    found = status.get(name)
    return found if isinstance(found, int) else 0


def _times(since_ms: int, until_ms: int, wait_ms: int | None, now_ms: int) -> tuple[str, str, str]:
    estimate = "" if wait_ms is None else duration(wait_ms)
    return duration(now_ms - since_ms), duration(until_ms - now_ms), estimate


def _labels(labels: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    return list(labels.items())[:MOST_LABELS]
