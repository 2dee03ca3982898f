"""The parts of a start and of a command that add up to what the caller has waited. Pure."""

from __future__ import annotations

from collections.abc import Mapping

REST = "call"
"""What is in no phase, where the platform tells all of them: quotas, the gateway, the network, retries."""

UNKNOWN = "unknown"
"""What nobody tells: the replica that began a start has gone, or its record was rebuilt after a loss."""

_WHOLE = frozenset({"start", "ready_push"})
"""What is told of every cold start; without them what is in no phase may be in these."""


def of_start(timings_ms: Mapping[str, float], took_ms: float) -> dict[str, float]:
    """Divide a cold start into parts that add up to it.

    The platform's phases overlap: the pull is a part of the cluster's answer where it is told, and the boot one of the
    wait for the readiness push, whose rest is the node's (scheduling, the kubelet's pull, its containers).

    Args:
        timings_ms: as a record has them.
        took_ms: what the whole start took.

    Returns:
        queue, copy, convert, `UNKNOWN`, pull, start, node, boot and `REST`, in ms, as far as they are not 0.
        Without the phases that are told of every start there is no `REST`: what is missing is `UNKNOWN`.
    """
    pull, boot = timings_ms.get("pull", 0.0), timings_ms.get("boot", 0.0)
    found = {name: timings_ms.get(name, 0.0) for name in ("queue", "copy", "convert", UNKNOWN)}
    found["pull"] = pull
    found["start"] = max(0.0, timings_ms.get("start", 0.0) - pull)
    found["node"] = max(0.0, timings_ms.get("ready_push", 0.0) - boot)
    found["boot"] = boot
    told = timings_ms.keys() >= _WHOLE or UNKNOWN in timings_ms
    return _added_up(found, took_ms, rest=REST if told else UNKNOWN)


def of_exec(answer: Mapping[str, object], took_ms: float) -> dict[str, float]:
    """Divide an exec into queue, spawn, run and `REST`, in ms.

    Args:
        answer: the wire form of its result.
        took_ms: what the whole call took.
    """
    found = {name: _number(answer.get(f"{name}_ms")) for name in ("queue", "spawn", "run")}
    return _added_up(found, took_ms)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _added_up(parts: dict[str, float], took_ms: float, rest: str = REST) -> dict[str, float]:
    """Make parts add up to the whole: what is missing is `rest`, and clocks that tell too much are scaled down."""
    told_ms = sum(parts.values())
    if told_ms > took_ms:
        parts = {name: took_ms * part / told_ms for name, part in parts.items()}
    return {name: part for name, part in {**parts, rest: took_ms - told_ms}.items() if part > 0}
