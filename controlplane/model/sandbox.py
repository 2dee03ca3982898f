"""``Sandbox``: the record of one sandbox, an immutable value; ``lifecycle.states`` says how it may change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controlplane.errors import TABLE, Code, Fault, Problem
from controlplane.model.spec import SandboxSpec


class State(StrEnum):
    """Where a sandbox is in its life."""

    REQUESTED = "requested"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"

    @property
    def counted(self) -> bool:
        """Whether it uses up quota: until its end begins, not until the cluster has confirmed it."""
        return self not in (State.ENDING, State.ENDED)


@dataclass(frozen=True, slots=True)
class EndCause:
    """Why, when and by whom a sandbox ended.

    Attributes:
        cause: what calls to this sandbox are answered with from now on.
        detail: one sentence for people.
        at_ms: Unix time.
        by: who ended it: an owner's name, or a part of the platform.
    """

    cause: Code
    detail: str
    at_ms: int
    by: str

    @property
    def fault(self) -> Fault:
        """Whose fault the end is."""
        return TABLE[self.cause].fault

    def problem(self, sandbox_id: str) -> Problem:
        """What a caller of the ended sandbox gets."""
        return Problem(self.cause, self.detail, sandbox_id=sandbox_id, ended_at_ms=self.at_ms, by=self.by)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One sandbox as the store keeps it.

    Attributes:
        version: grows by one with every stored change; the store compares it before it sets.
        generation: fences routes; grows when the address changes.
        fingerprint: of the spec as it was asked for; outlives ``spec.env``, which no cluster keeps.
        address: where the sidecar answers, once it is known.
        timings_ms: how long each phase of the start took, by phase.
    """

    id: str
    owner: str
    spec: SandboxSpec
    created_at_ms: int
    expires_at_ms: int
    fingerprint: str
    idempotency_key: str | None = None
    state: State = State.REQUESTED
    version: int = 0
    generation: int = 1
    ready_at_ms: int | None = None
    address: str | None = None
    kernel: str = ""
    end: EndCause | None = None
    timings_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def start_by_ms(self) -> int:
        """When its start is overdue (Unix time)."""
        return self.created_at_ms + self.spec.start_timeout_ms

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether every one of ``labels`` is on this sandbox."""
        return all(self.spec.labels.get(key) == value for key, value in labels.items())
