"""``Sandbox``: the record of one sandbox, an immutable value; ``states`` says how it may change."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Self

from controlplane.egress import UNBOUND, Binding, read_fact
from controlplane.errors import TABLE, Code, Fault, Problem
from controlplane.model.spec import SandboxSpec

# How a node gets an image; empty: not known.
Pulled = Literal["full", "lazy", ""]

# What a start may wait for of which its timeline tells.
PHASES: Final = frozenset({"copy", "convert", "pull"})
# The time of a start of which no replica that is left says what it went into.
UNKNOWN_PHASE: Final = "unknown"
# In the timeline of a start that no node has room for.
WAITS_FOR_ROOM: Final = "room"
POOL_OWNER: Final = "pool:"
# A cold start usually takes at least this long.
COLD_START_MS: Final = 2_000
# What a record keeps of the details of the error that ended a sandbox.
MOST_DETAILS: Final = 8
MOST_OF_A_DETAIL: Final = 256
# Details that the record says in other fields, or that are about one request alone.
_NOT_KEPT: Final = frozenset({"sandbox_id", "ended_at_ms", "by", "phase", "waited_ms"})
_PORTS_FACT: Final = re.compile(r"([0-9]{1,15}):((?:[0-9]{1,5}(?:,[0-9]{1,5})*)?)")


def pool_owner(pool: str) -> str:
    """The owner of a pool's unclaimed sandboxes; an owner with an API key has no colon in its name."""
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
        """Whether it is not ready yet."""
        return self in (State.REQUESTED, State.QUEUED, State.STARTING)


LIVE: Final = frozenset(State) - {State.ENDED}


# The states in which its sidecar serves calls and the gateways have its route.
UP: Final = frozenset({State.WARM, State.RUNNING})


@dataclass(frozen=True, slots=True)
class EndCause:
    """Why and when a sandbox ended, and what ended it.

    Attributes:
        cause: the error code with which calls to this sandbox fail from then on.
        detail: one sentence for people.
        at_ms: Unix time.
        by: what ended it: an owner's name, or a part of the platform.
        details: those of the error that ended it, as ``reason``, whose hint is told instead of the code's; bounded.
    """

    cause: Code
    detail: str
    at_ms: int
    by: str
    details: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, at_ms: int, by: str) -> Self:
        """An end by this error; of its details those that are short are kept, and the first few by name."""
        kept = [
            (name, value)
            for name, value in sorted(problem.details.items())
            if name not in _NOT_KEPT and len(name) + len(value) <= MOST_OF_A_DETAIL
        ]
        return cls(problem.code, problem.detail, at_ms, by, dict(kept[:MOST_DETAILS]))

    @classmethod
    def read(cls, members: Mapping[str, Any]) -> Self:
        """From the JSON of a record; what a newer version says besides is left out.

        Raises:
            ValueError, TypeError: it is malformed, or its cause is none of this version.
        """
        end = cls(**{name: members[name] for name in cls.__slots__ if name in members})
        if end.cause not in TABLE:
            raise ValueError(f"not a cause of this version: {end.cause!r}")
        return replace(end, at_ms=int(end.at_ms))

    @property
    def fault(self) -> Fault:
        """Whose fault the end is."""
        return TABLE[self.cause].fault

    @property
    def mask_sample(self) -> bool:
        """Whether the end says nothing about the sample that the sandbox was for, so RL code should mask the sample."""
        return TABLE[self.cause].mask_sample

    def problem(self, sandbox: "Sandbox") -> Problem:
        """The error that calls to the ended sandbox get.

        The detail ``phase`` is there for a start that took too long, and names what it was waiting for where that is
        on record: ``copy``, ``convert``, ``pull``. ``waited_ms`` is there for one that waited for room as long as it
        could: its caller need not ask again at once.
        """
        last = next((one.word for one in reversed(sandbox.timeline) if one.word not in (self.cause, "confirm")), "")
        phase: dict[str, Any] = {"phase": last} if self.cause == "start_timeout" and last in PHASES else {}
        if self.cause == "capacity_unavailable" and sandbox.begin_by_ms <= self.at_ms <= sandbox.start_by_ms:
            phase["waited_ms"] = self.at_ms - sandbox.created_at_ms
        problem = Problem(self.cause, self.detail, sandbox_id=sandbox.id, ended_at_ms=self.at_ms, by=self.by, **phase)
        problem.details = {**self.details, **problem.details}
        return problem


class Moment(NamedTuple):
    """One entry of a sandbox's timeline.

    Attributes:
        at_ms: Unix time.
        state: the sandbox's state from then on.
        word: the name of the event, or the cause of the end.
    """

    at_ms: int
    state: State
    word: str


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One sandbox as the store keeps it.

    Attributes:
        version: incremented with every stored change; the store's compare-and-set compares it.
        generation: fences routes; incremented when the address changes.
        fingerprint: hash of the spec as it was requested; still known when ``spec.env`` is not, which no cluster keeps.
        address: the sidecar's address, once it is known.
        timings_ms: how long each phase of the start took, by phase.
        public_ports: the ports that can be reached without a token, in ascending order.
        ports_revision: increases with every change of ``public_ports``, also across a loss of the store (Unix ms of the
            change).
        egress: which network policy it has, and whether that is in force.
        pool: the name of the pool that started it; stays after the claim. Empty: it was started for its owner.
        interpreter: what it was started with for the first caller that asks for an interpreter; empty: nothing.
        claimed_at_ms: when an owner claimed it from its pool.
        claim_id: the id that its create had before a warm sandbox was found.
        cold_reason: why it was started for its owner although pools of its image exist.
        timeline: its events, oldest first; bounded (``lifecycle.record.timeline``).
        callers: the attempts of creates with its key that want it (``lifecycle.record.callers``); empty: unknown.
        image_digest: of the image that it is started with; empty: not known, its node understands the name by itself.
        image_ran: digest of the copy that its node runs in place of ``image_digest``; empty: there is none.
        image_stale: the image's registry did not answer: the digest is what the name meant when it was copied.
        image_pulled: how its node was to get the image: whole before it starts, or while it runs; empty: not known.
        image_pulled_why: why whole, where lazily was possible; of one mounted lazily: whose recorded copy it is.
        abandoned_at_ms: since when no caller wants it; None: some caller does, or it is unknown.
        settings_digest: digest of the late settings that a gateway binds; its tokens promise them. Empty: none.
        draining_at_ms: when it is ended at the latest, since its node is drained; None: it is not.
        draining_exact: whether that moment was named, not counted from when a mark on the node was first seen.
        asked_timeout_ms: the start timeout that its create asked for, where less of it was left; 0: the spec's.
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
    egress: Binding = UNBOUND
    pool: str = ""
    interpreter: str = ""
    claimed_at_ms: int | None = None
    claim_id: str = ""
    cold_reason: str = ""
    timeline: tuple[Moment, ...] = ()
    callers: tuple[str, ...] = ()
    abandoned_at_ms: int | None = None
    image_digest: str = ""
    image_ran: str = ""
    image_stale: bool = False
    image_pulled: Pulled = ""
    image_pulled_why: str = ""
    settings_digest: str = ""
    draining_at_ms: int | None = None
    draining_exact: bool = False
    asked_timeout_ms: int = 0

    @property
    def asked_start_ms(self) -> int:
        """How long its start may take by what its caller asked for; a try that comes later has less."""
        return self.asked_timeout_ms or self.spec.start_timeout_ms

    @property
    def warm(self) -> bool:
        """Whether its owner claimed it from a pool."""
        return self.claimed_at_ms is not None

    @property
    def unclaimed(self) -> bool:
        """Whether it belongs to a pool and no owner has claimed it yet."""
        return bool(self.pool) and self.claimed_at_ms is None

    @property
    def waits_for_room(self) -> bool:
        """Whether no node had room for it when its timeline was written last."""
        return self.state is State.QUEUED and bool(self.timeline) and self.timeline[-1].word == WAITS_FOR_ROOM

    @property
    def told(self) -> bool:
        """Whether replicas hear of this change from one another: what is up or over, and what needs room on a node."""
        return self.state in UP or self.end is not None or self.state is State.STARTING or self.waits_for_room

    @property
    def drained_by_ms(self) -> int | None:
        """When it ends at the latest, since its node is drained (Unix ms): then, or with its ttl; None: it is not."""
        if self.draining_at_ms is None or self.end is not None:
            return None
        return min(self.draining_at_ms, self.expires_at_ms)

    @property
    def start_by_ms(self) -> int:
        """The deadline of its start (Unix time)."""
        return self.created_at_ms + self.spec.start_timeout_ms

    @property
    def begin_by_ms(self) -> int:
        """The latest time to begin its start (Unix time); a start that begins later would miss its deadline."""
        return self.start_by_ms - min(COLD_START_MS, self.spec.start_timeout_ms // 4)

    def with_port(self, port: int, *, public: bool, now_ms: int) -> Self:
        """The record with this port made public or private; unchanged when it is so already."""
        ports = {*self.public_ports, port} if public else {*self.public_ports} - {port}
        if ports == {*self.public_ports}:
            return self
        revision = max(now_ms, self.ports_revision + 1)
        return replace(self, public_ports=tuple(sorted(ports)), ports_revision=revision, version=self.version + 1)

    @property
    def ports_fact(self) -> str:
        """The public ports and their revision, as the cluster stores them with the sandbox."""
        return f"{self.ports_revision}:{','.join(map(str, self.public_ports))}"

    def with_ports_fact(self, fact: str) -> Self:
        """The record with the public ports from a ``ports_fact`` text; unchanged when the text is malformed."""
        found = _PORTS_FACT.fullmatch(fact)
        if found is None:
            return self
        ports = tuple(int(port) for port in found[2].split(",") if port)
        return replace(self, public_ports=ports, ports_revision=int(found[1]))

    def with_egress(self, binding: Binding) -> Self:
        """The record with this network policy; unchanged when it has it."""
        return self if binding == self.egress else replace(self, egress=binding, version=self.version + 1)

    def with_egress_fact(self, fact: str) -> Self:
        """The record with the network policy from a ``Binding.fact`` text, unless it has a newer one."""
        found = read_fact(fact)
        if found is None or found[0].revision < self.egress.revision:
            return self
        return replace(self, egress=found[0])

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether this sandbox has all of ``labels``."""
        return all(self.spec.labels.get(key) == value for key, value in labels.items())
