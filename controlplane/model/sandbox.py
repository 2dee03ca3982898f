"""``Sandbox``: the record of one sandbox, an immutable value; ``lifecycle.states`` says how it may change."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple, Self

from controlplane.errors import TABLE, Code, Fault, Problem
from controlplane.model.spec import SandboxSpec

# What a claim binds to a warm sandbox besides its state; all else is the sandbox's own.
BOUND: Final = ("owner", "spec", "expires_at_ms", "fingerprint", "idempotency_key", "callers")
POOL_OWNER: Final = "pool:"
# What a cold start takes at least, as a rule.
COLD_START_MS: Final = 2_000
_PORTS_FACT: Final = re.compile(r"([0-9]{1,15}):((?:[0-9]{1,5}(?:,[0-9]{1,5})*)?)")


def pool_owner(pool: str) -> str:
    """Who owns what a pool keeps until it is claimed; no caller's name has a colon."""
    return POOL_OWNER + pool


class State(StrEnum):
    """Where a sandbox is in its life."""

    REQUESTED = "requested"
    QUEUED = "queued"
    STARTING = "starting"
    WARM = "warm"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"

    @property
    def counted(self) -> bool:
        """Whether it uses up quota: until its end begins, not until the cluster has confirmed it."""
        return self not in (State.ENDING, State.ENDED)

    @property
    def unready(self) -> bool:
        """Whether its start is not over."""
        return self in (State.REQUESTED, State.QUEUED, State.STARTING)


# Its sidecar answers, and the gateways know where.
UP: Final = frozenset({State.WARM, State.RUNNING})


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

    @property
    def mask_sample(self) -> bool:
        """Whether it says nothing about the sample that the sandbox was for."""
        return TABLE[self.cause].mask_sample

    def problem(self, sandbox_id: str) -> Problem:
        """What a caller of the ended sandbox gets."""
        return Problem(self.cause, self.detail, sandbox_id=sandbox_id, ended_at_ms=self.at_ms, by=self.by)


class Moment(NamedTuple):
    """Something that has happened to a sandbox.

    Attributes:
        at_ms: Unix time.
        state: where it was from then on.
        word: what it was: an event, or the cause of the end.
    """

    at_ms: int
    state: State
    word: str


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One sandbox as the store keeps it.

    Attributes:
        version: grows by one with every stored change; the store compares it before it sets.
        generation: fences routes; grows when the address changes.
        fingerprint: of the spec as it was asked for; outlives ``spec.env``, which no cluster keeps.
        address: where the sidecar answers, once it is known.
        timings_ms: how long each phase of the start took, by phase.
        public_ports: what anyone may reach without a token, in order.
        ports_revision: grows with every change of them, also across a loss of the store (Unix ms of the change).
        pool: the name of the pool that started it; stays after the claim. Empty: it was started for its owner.
        claimed_at_ms: when an owner got it from its pool.
        claim_id: the id that its create had before a warm one was found.
        cold_reason: why it was started for its owner although pools of its image exist.
        timeline: what has happened to it, oldest first; bounded (``lifecycle.timeline``).
        callers: the tries of creates with its key that want it (``lifecycle.callers``); empty where nobody can say.
        abandoned_at_ms: since when nobody wants it; None: somebody does, or nobody can say.
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
    public_ports: tuple[int, ...] = ()
    ports_revision: int = 0
    pool: str = ""
    claimed_at_ms: int | None = None
    claim_id: str = ""
    cold_reason: str = ""
    timeline: tuple[Moment, ...] = ()
    callers: tuple[str, ...] = ()
    abandoned_at_ms: int | None = None

    @property
    def warm(self) -> bool:
        """Whether its owner got it ready from a pool."""
        return self.claimed_at_ms is not None

    @property
    def unclaimed(self) -> bool:
        """Whether it is a pool's, and nobody's yet."""
        return bool(self.pool) and self.claimed_at_ms is None

    def claimed_by(self, wish: "Sandbox", at_ms: int) -> Self:
        """A warm sandbox as the owner of ``wish`` gets it: his name, spec, key and times; the rest stays its own."""
        return replace(
            self,
            state=State.RUNNING,
            version=self.version + 1,
            claimed_at_ms=at_ms,
            claim_id=wish.id,
            **{name: getattr(wish, name) for name in BOUND},
        )

    @property
    def start_by_ms(self) -> int:
        """When its start is overdue (Unix time)."""
        return self.created_at_ms + self.spec.start_timeout_ms

    @property
    def begin_by_ms(self) -> int:
        """Until when it makes sense to begin its start (Unix time): what begins later is only told to be too late."""
        return self.start_by_ms - min(COLD_START_MS, self.spec.start_timeout_ms // 4)

    def with_port(self, port: int, *, public: bool, now_ms: int) -> Self:
        """The record with this port open to anyone, or not any more; itself when that is so already."""
        ports = {*self.public_ports, port} if public else {*self.public_ports} - {port}
        if ports == {*self.public_ports}:
            return self
        revision = max(now_ms, self.ports_revision + 1)
        return replace(self, public_ports=tuple(sorted(ports)), ports_revision=revision, version=self.version + 1)

    @property
    def ports_fact(self) -> str:
        """The public ports as a cluster carries them beside the sandbox."""
        return f"{self.ports_revision}:{','.join(map(str, self.public_ports))}"

    def with_ports_fact(self, fact: str) -> Self:
        """The record with what ``ports_fact`` says; itself when that is not such a fact."""
        found = _PORTS_FACT.fullmatch(fact)
        if found is None:
            return self
        ports = tuple(int(port) for port in found[2].split(",") if port)
        return replace(self, public_ports=ports, ports_revision=int(found[1]))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether every one of ``labels`` is on this sandbox."""
        return all(self.spec.labels.get(key) == value for key, value in labels.items())
