"""What the engine says about containers that are no more: from its words to a typed death. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from controlplane.cluster.engine.containers import LABEL_ROLE, LABEL_SANDBOX
from controlplane.cluster.protocol import Death

Inspection = Mapping[str, Any]

MAX_WORDS_CHARS: Final = 400
_HEADER_BYTES: Final = 8
# Never started or ended in peace, killed, asked to end.
_SILENT: Final = (0, 137, 143)


@dataclass(frozen=True, slots=True)
class Exit:
    """A container of a sandbox has ended or was removed.

    Attributes:
        sure: the event itself says that it does not run; a removal is judged by what is left.
    """

    sandbox_id: str
    detail: str
    sure: bool


def exit_of(event: Mapping[str, Any]) -> Exit | None:
    """Reads one event of the engine; None when it is of no concern."""
    action = str(event.get("Action", ""))
    attributes = event.get("Actor", {}).get("Attributes", {})
    if action not in ("die", "died", "destroy", "remove") or LABEL_SANDBOX not in attributes:
        return None
    role, code = attributes.get(LABEL_ROLE, "container"), attributes.get("exitCode", "unknown")
    sure = action in ("die", "died")
    return Exit(str(attributes[LABEL_SANDBOX]), f"the {role} ended with exit code {code}", sure)


def death(sandbox_id: str, containers: Mapping[str, Inspection | None]) -> Death | None:
    """Judges a sandbox by its containers (role -> inspection, None = gone); None when both run.

    A sandbox is dead when either container is: a target without its sidecar takes no command, a sidecar without its
    target has nowhere to run one.
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
    """Whether a container ended by itself and in trouble: then its log says why. A killed one has nothing to say."""
    return seen is not None and not _state(seen).get("Running") and _state(seen).get("ExitCode") not in _SILENT


def last_words(log: bytes) -> str:
    """The last line of a container's log, as the engine frames it: eight bytes of header before every piece."""
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
