"""``Sandboxes``: what the API asks for, in terms of owners, specs and keys."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from controlplane.cluster import Description
from controlplane.errors import Problem
from controlplane.lifecycle.completion import Push
from controlplane.lifecycle.endings import PLATFORM, Deleted
from controlplane.lifecycle.lives import Lives
from controlplane.lifecycle.parts import Options, Parts
from controlplane.lifecycle.tokens import Token
from controlplane.model import Sandbox, SandboxSpec, State
from controlplane.store import Admitted, Full, Known, Withdrawn
from controlplane.telemetry import Levels

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
LIVE: Final = frozenset(State) - {State.ENDED}
# Of one sandbox: each is a row in every gateway.
MOST_PUBLIC_PORTS: Final = 64


def new_id() -> str:
    """A sandbox's id: a DNS label of 80 random bits, never used again."""
    return "sb-" + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in secrets.token_bytes(16))


@dataclass(frozen=True, slots=True)
class Created:
    """A ready sandbox; ``replayed`` when its key had been used before with the same parameters."""

    sandbox: Sandbox
    replayed: bool


class Sandboxes:
    """The lifecycle service. Use ``async with Sandboxes.running(...)``: what it starts ends with the block."""

    def __init__(self, parts: Parts, options: Options, lives: Lives) -> None:
        self._parts = parts
        self._options = options
        self._lives = lives
        self._draining = False

    @classmethod
    @asynccontextmanager
    async def running(cls, parts: Parts, options: Options) -> AsyncIterator["Sandboxes"]:
        """A service that has adopted what ran before it, with its loops running; they end with the block.

        Sandboxes that run at the end of the block run on; call ``drain`` before, to delete them.

        Raises:
            Problem: the cluster cannot be listed (in a group, as everything that fails while the block runs).
        """
        async with asyncio.TaskGroup() as group:
            lives = Lives(parts, options, group)
            await lives.open()
            service = cls(parts, options, lives)
            try:
                yield service
            finally:
                service._draining = True
                await lives.close()

    @property
    def description(self) -> Description:
        """What runs the sandboxes."""
        return self._parts.cluster.describe()

    async def levels(self) -> Levels:
        """What is true at this moment, for the metrics; no counts while the store does not answer."""
        try:
            states = await self._lives.store.counts()
        except Problem:
            states = {}
        turns = self._lives.starter.turns
        return Levels(states, turns.taken, turns.waiting, self._parts.board.subscribers, self._lives.notes.behind)

    @property
    def draining(self) -> bool:
        """Whether new creates are refused because the end is near."""
        return self._draining

    async def create(self, owner: str, spec: SandboxSpec, key: str | None = None) -> Created:
        """Creates a sandbox and returns when it is ready.

        A repeated ``key`` with the same spec waits for and answers the same sandbox. A cancelled call does not stop
        the start: the owner may come back for it with its key, or ``abandon`` it.

        Raises:
            Problem: draining, unsupported, conflict, deleted (the key was withdrawn), capacity_unavailable, or why
                the sandbox ended before it was ready.
        """
        sandbox, replayed = await self.request(owner, spec, key)
        return Created(await self.ready(sandbox), replayed)

    async def request(self, owner: str, spec: SandboxSpec, key: str | None = None) -> tuple[Sandbox, bool]:
        """Admits a sandbox and begins its start; the record, and whether the key had been used before."""
        if self._draining:
            raise Problem("draining", "this control plane is stopping", retry_after_ms=1000)
        self._parts.cluster.check(spec)
        candidate = self._candidate(owner, spec, key)
        ledger, admission = self._lives.ledger, None
        # Before the store is asked: one who comes with the same key a moment later waits for the same settlement.
        ledger.expect(candidate.id)
        try:
            admission = await self._lives.store.admit(candidate, self._options.max_sandboxes)
        except Problem:
            self._lives.doubt(candidate)
            raise
        finally:
            if not isinstance(admission, Admitted):
                ledger.unexpect(candidate.id)
        if isinstance(admission, Admitted):
            self._lives.begin(admission.sandbox)
            return admission.sandbox, False
        return _known(admission, candidate), True

    async def ready(self, sandbox: Sandbox) -> Sandbox:
        """Waits until the start has settled; the record of the running sandbox.

        Raises:
            Problem: why it ended; draining: it gets ready elsewhere, ask there with its key. Without a key it is ended.
        """
        try:
            settled = await self._lives.ledger.settled(sandbox)
        except Problem as problem:
            if problem.code == "draining" and sandbox.idempotency_key is None:
                await self.abandon(sandbox)
            raise
        if settled.end is not None:
            raise settled.end.problem(settled.id)
        return settled

    async def abandon(self, sandbox: Sandbox) -> None:
        """Ends a sandbox whose creator has gone away without a key to come back with."""
        await self._lives.endings.end(
            sandbox.id, Problem("deleted", "its creator went away before it was ready"), PLATFORM
        )

    async def get(self, owner: str, sandbox_id: str) -> Sandbox:
        """The record, also of an ended sandbox.

        Raises:
            Problem: sandbox_not_found, also when it belongs to another owner.
        """
        sandbox = await self._lives.store.get(sandbox_id)
        if sandbox is None or sandbox.owner != owner:
            raise Problem("sandbox_not_found", f"there is no sandbox {sandbox_id}", sandbox_id=sandbox_id)
        return sandbox

    async def find(
        self, owner: str, labels: Mapping[str, str], states: Collection[State] | None = LIVE
    ) -> Sequence[Sandbox]:
        """The owner's sandboxes with all these labels in one of these states (None: any), oldest first."""
        return await self._lives.store.find(owner, labels, states)

    async def delete(self, owner: str, sandbox_id: str) -> Sandbox:
        """Ends a sandbox and returns when the cluster has confirmed it. Legal in every state; repeating is success.

        Quota is free and the gateways know before this waits for the cluster.

        Raises:
            Problem: sandbox_not_found, upstream_timeout (not confirmed yet; safe to repeat).
        """
        sandbox = await self.get(owner, sandbox_id)
        await self._lives.endings.end(sandbox_id, _by_owner(), owner)
        await self._lives.endings.confirmed(sandbox)
        return await self.get(owner, sandbox_id)

    async def delete_all(self, owner: str, labels: Mapping[str, str]) -> Deleted:
        """Deletes all the owner's sandboxes with all these labels, together."""
        return await self._lives.endings.end_all(await self._lives.store.find(owner, labels, LIVE), _by_owner(), owner)

    async def delete_key(self, owner: str, key: str) -> Deleted:
        """Deletes the sandbox that took ``key``; if none has, no create may take it any more (for 24 h)."""
        sandbox = await self._lives.store.withdraw(owner, key)
        return await self._lives.endings.end_all([] if sandbox is None else [sandbox], _by_owner(), owner)

    async def extend(self, owner: str, sandbox_id: str, ttl_ms: int) -> Sandbox:
        """Lets a sandbox live at least ``ttl_ms`` from now.

        Raises:
            Problem: sandbox_not_found, or why it has ended.
        """
        await self.alive(owner, sandbox_id)
        sandbox = await self._lives.ledger.extend(sandbox_id, self._parts.clock.now_ms() + ttl_ms)
        if sandbox is None or sandbox.end is not None:
            return await self.alive(owner, sandbox_id)
        self._lives.endings.reaper.watch(sandbox_id, sandbox.expires_at_ms)
        await self._note(sandbox_id, {"expires_at_ms": str(sandbox.expires_at_ms)})
        return sandbox

    async def open_port(self, owner: str, sandbox_id: str, port: int, *, public: bool) -> Sandbox:
        """Lets anyone reach a port without a token, or takes that back; the gateways know when this returns.

        Raises:
            Problem: sandbox_not_found, why it has ended, or quota_exceeded: too many ports are public.
        """
        before = await self.alive(owner, sandbox_id)
        if public and port not in before.public_ports and len(before.public_ports) >= MOST_PUBLIC_PORTS:
            detail = f"{sandbox_id} has {MOST_PUBLIC_PORTS} public ports, no more are opened"
            raise Problem("quota_exceeded", detail, sandbox_id=sandbox_id, limit=MOST_PUBLIC_PORTS)
        sandbox = await self._lives.ledger.open_port(sandbox_id, port, public=public)
        if sandbox is None or sandbox.end is not None:
            return await self.alive(owner, sandbox_id)
        await self._note(sandbox_id, {"public_ports": sandbox.ports_fact})
        return sandbox

    async def _note(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        if self._parts.cluster.annotates_behind:
            self._lives.notes.write(sandbox_id, facts, soon=True)
        else:
            await self._parts.cluster.annotate(sandbox_id, facts)

    async def alive(self, owner: str, sandbox_id: str) -> Sandbox:
        """The record of a sandbox that has not ended.

        Raises:
            Problem: sandbox_not_found, or why it has ended.
        """
        sandbox = await self.get(owner, sandbox_id)
        if sandbox.end is not None:
            raise sandbox.end.problem(sandbox_id)
        return sandbox

    def mint(self, sandbox: Sandbox) -> Token:
        """A token for this sandbox."""
        return self._parts.key.token(sandbox)

    async def accept_push(self, credential: str, push: Push) -> None:
        """Takes a readiness push; see ``Readiness.accept``."""
        await self._lives.readiness.accept(credential, push)

    async def drain(self, *, delete: bool) -> Deleted:
        """Takes no new creates; with ``delete``, ends every sandbox and waits while the cluster gets on with it.

        Without, and with other replicas about, who waits for a start is sent to them: the sandbox gets ready there.
        """
        self._draining = True
        if self._lives.store.shared and not delete:
            self._lives.ledger.leave()
        ids: list[str] = []
        left = Deleted((), {})
        while delete:
            everything = await self._lives.store.find(None, {}, LIVE)
            left = await self._lives.endings.end_all(
                everything, Problem("deleted", "the platform was stopped"), "operator"
            )
            ids.extend(left.ids)
            delete = bool(left.failed and left.ids)
        return Deleted(ids, left.failed)

    def _candidate(self, owner: str, spec: SandboxSpec, key: str | None) -> Sandbox:
        now_ms = self._parts.clock.now_ms()
        return Sandbox(
            id=new_id(),
            owner=owner,
            spec=spec,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + spec.ttl_ms,
            fingerprint=spec.fingerprint(),
            idempotency_key=key,
        )


def _by_owner() -> Problem:
    return Problem("deleted", "it was deleted by its owner")


def _known(admission: Known | Withdrawn | Full, candidate: Sandbox) -> Sandbox:
    """The sandbox that took the candidate's key with the same parameters, or why there is none."""
    key = candidate.idempotency_key
    if isinstance(admission, Withdrawn):
        raise Problem("deleted", f"key {key} was deleted before its create arrived", idempotency_key=key)
    if isinstance(admission, Full):
        knob = "ROLLBOX_CONTROLPLANE_MAX_SANDBOXES"
        used, limit = admission.used, admission.limit
        detail = f"{used} of at most {limit} sandboxes are in use here ({knob})"
        raise Problem("capacity_unavailable", detail, retry_after_ms=1000, used=used, limit=limit, knob=knob)
    if admission.sandbox.fingerprint != candidate.fingerprint:
        detail = f"key {key} was used with other parameters for {admission.sandbox.id}"
        raise Problem("conflict", detail, idempotency_key=key, sandbox_id=admission.sandbox.id)
    return admission.sandbox
