"""Events: each entry of a sandbox's timeline, as something that others are told once. Pure.

Nothing is written for events: a record has its timeline, and records are kept for a day after their end.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from controlplane.lifecycle.record.timeline import WORDS, story
from controlplane.model import Sandbox, State

# The kind of the entry whose word is the cause of the end.
END: Final = "end"
KINDS: Final = frozenset({*map(str, WORDS), END})


@dataclass(frozen=True, slots=True)
class SandboxEvent:
    """Something that has happened to a sandbox.

    Attributes:
        id: the same whenever and by whichever replica it is told.
        kind: a word of the timeline, or ``end``.
        at_ms: when (Unix ms, by the clock of the replica that has done it).
        state: of the sandbox from then on.
        text: the kind as a phrase.
        sandbox: its record, as it is known now.
    """

    id: str
    kind: str
    at_ms: int
    state: State
    text: str
    sandbox: Sandbox


def events_of(sandbox: Sandbox, since_ms: int) -> Iterator[SandboxEvent]:
    """What has happened to a sandbox since then, oldest first; of one from a pool, what its owner has seen of it."""
    since_ms = max(since_ms, sandbox.claimed_at_ms or 0)
    for line in story(sandbox):
        if line.at_ms >= since_ms:
            kind = line.word if line.word in WORDS else END
            event_id = f"{sandbox.id}.{line.at_ms}.{line.word}"
            yield SandboxEvent(event_id, kind, line.at_ms, line.state, line.text, sandbox)


def in_order(sandboxes: Iterable[Sandbox], since_ms: int) -> list[SandboxEvent]:
    """What has happened to all of these since then, oldest first."""
    return sorted((one for sandbox in sandboxes for one in events_of(sandbox, since_ms)), key=lambda one: one.at_ms)
