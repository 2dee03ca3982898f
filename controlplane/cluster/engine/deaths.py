"""Derives a sandbox's death and its cause from the engine's events and inspections of its containers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from controlplane.cluster.engine.containers import LABEL_ROLE, LABEL_SANDBOX
from controlplane.cluster.protocol import Death

Inspection = Mapping[str, Any]

MAX_WORDS_CHARS: Final = 400
_HEADER_BYTES: Final = 8
# Exit codes without a reason in the log: never started or success, SIGKILL, SIGTERM.
_SILENT: Final = (0, 137, 143)


@dataclass(frozen=True, slots=True)
class Exit:
    """An event: a container of a sandbox has exited or was removed.

    Attributes:
        sure: whether the event alone proves that the container does not run; after a removal the containers that are
            left have to be inspected.
    """

    sandbox_id: str
    detail: str
    sure: bool


def exit_of(event: Mapping[str, Any]) -> Exit | None:
    """Parses an event of the engine; None if it is not the end of a sandbox's container."""
    action = str(event.get("Action", ""))
    attributes = event.get("Actor", {}).get("Attributes", {})
    if action not in ("die", "died", "destroy", "remove") or LABEL_SANDBOX not in attributes:
        return None
    role, code = attributes.get(LABEL_ROLE, "container"), attributes.get("exitCode", "unknown")
    sure = action in ("die", "died")
    return Exit(str(attributes[LABEL_SANDBOX]), f"the {role} ended with exit code {code}", sure)


def death(sandbox_id: str, containers: Mapping[str, Inspection | None]) -> Death | None:
    """A sandbox's death by its containers (role -> inspection, None = removed); None when both run.

    A sandbox is dead when either container is: without its sidecar it accepts no command, without its target the
    sidecar has no place to run one.
    """
    stopped = {role: seen for role, seen in containers.items() if seen is None or not _state(seen).get("Running")}
    if not stopped:
        return None
    for role, seen in stopped.items():
        if seen is not None and _state(seen).get("OOMKilled"):
            return Death(sandbox_id, "oom_killed", f"the kernel killed the {role} for memory")
    role, seen = next(iter(stopped.items()))
    return Death(sandbox_id, "sandbox_lost", f"the {role} {_how(seen)}")


def gave_up(seen: Inspection | None) -> bool:
    """Whether a container exited by itself with an error: its log has the reason then, unlike that of a killed one."""
    return seen is not None and not _state(seen).get("Running") and _state(seen).get("ExitCode") not in _SILENT


def last_words(log: bytes) -> str:
    """The last line of a container's log, from the engine's stream format (an 8-byte header before every chunk)."""
    text, rest = b"", log
    while len(rest) >= _HEADER_BYTES:
        size_bytes = int.from_bytes(rest[4:_HEADER_BYTES], "big")
        text, rest = text + rest[_HEADER_BYTES : _HEADER_BYTES + size_bytes], rest[_HEADER_BYTES + size_bytes :]
    lines = text.decode(errors="replace").split("\n")
    return next((line.strip()[:MAX_WORDS_CHARS] for line in reversed(lines) if line.strip()), "")


def _how(seen: Inspection | None) -> str:
    if seen is None:
        return "was removed from outside"
    state = _state(seen)
    if state.get("Status") == "created":
        return "was never started"
    error = f": {state['Error']}" if state.get("Error") else ""
    return f"ended with exit code {state.get('ExitCode')}{error}"


def _state(seen: Inspection) -> Mapping[str, Any]:
    state: Mapping[str, Any] = seen.get("State", {})
    return state
