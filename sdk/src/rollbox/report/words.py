"""What the names in a report mean, for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping

WORDS = {
    "create": "creates under way",
    "create.claim": "create: a warm sandbox is claimed",
    "create.queue": "create: waits for room or its turn",
    "create.copy": "create: the private registry copies the image",
    "create.convert": "create: the image is converted",
    "create.unknown": "create: not known (the control plane that began it has gone)",
    "create.pull": "create: the image is pulled",
    "create.start": "create: its containers are asked for",
    "create.node": "create: on the node (scheduling, pull, containers)",
    "create.boot": "create: from the sidecar's start to the first command",
    "create.call": "create: quotas, gateway, network",
    "create.failed": "create: failed in the end",
    "exec": "commands",
    "exec.queue": "exec: waits at the gateway",
    "exec.spawn": "exec: the process is started",
    "exec.run": "exec: the command runs",
    "exec.call": "exec: gateway, network",
    "running": "sandboxes run (commands, or none)",
    "idle": "no command runs: the program, the model",
    "none": "no sandbox",
}
"""What a part of the wall time is, by its name; in the order of a run."""


def of(name: str) -> str:
    """Return what a part is; the name itself where this version does not know it."""
    return WORDS.get(name, name)


def duration(milliseconds: float) -> str:
    """Write a duration with three digits and its unit; of hours all, and never an exponent."""
    for unit, size_ms in (("h", 3_600_000.0), ("min", 60_000.0), ("s", 1000.0)):
        if milliseconds >= size_ms:
            amount = milliseconds / size_ms
            return f"{amount:.3g} {unit}" if amount < 999.5 else f"{amount:.0f} {unit}"
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else "1 s"


def mask(row: Mapping[str, object]) -> str:
    """Say whether a kind of end or failure masks the sample; a delete by the owner is how a sandbox normally ends."""
    return "masks the sample" if row["masked"] and row.get("cause") != "deleted" else ""
