"""What a create asks the store for, and what the store's answers mean to it. Pure but for random ids."""

import secrets
from collections.abc import Mapping
from typing import Final

from controlplane.egress import UNBOUND, Binding
from controlplane.errors import Problem
from controlplane.lifecycle.record.timeline import noted
from controlplane.lifecycle.waiting.gates.quota import TOTAL_KNOB
from controlplane.model import Overcommit, Sandbox, SandboxSpec
from controlplane.model.spec import MIN_START_MS
from controlplane.model.states import Event, apply
from controlplane.store import Full, Known, Withdrawn

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
DIGEST: Final = "settings_digest"


def new_id() -> str:
    """A sandbox's id: a DNS label of 80 random bits, never used again."""
    return "sb-" + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in secrets.token_bytes(16))


def candidate(
    owner: str,
    spec: SandboxSpec,
    key: str | None,
    *,
    now_ms: int,
    idle_timeout_ms: int,
    overcommit: Overcommit,
    by_ms: int | None = None,
    egress: Binding = UNBOUND,
) -> Sandbox:
    """The sandbox that is asked for, before it is on record.

    Args:
        owner: whose it will be.
        spec: what it is to be.
        key: the idempotency key.
        now_ms: when it was asked for (Unix ms).
        idle_timeout_ms: of sandboxes that ask for none; 0: never.
        overcommit: what is set aside for sandboxes that give limits alone.
        by_ms: the caller's deadline (Unix ms), where less is left than the spec says.
        egress: the network policy that it is to have.

    Raises:
        Problem: start_timeout, nothing is left of the caller's time; invalid_argument: it has settings by value, which
            only gateways bind.
    """
    if spec.has_settings:
        detail = "env, cwd and user are bound by gateways: ask one of them, not the control plane"
        raise Problem("invalid_argument", detail, field=DIGEST)
    left_ms = spec.start_timeout_ms if by_ms is None else min(by_ms - now_ms, spec.start_timeout_ms)
    if left_ms <= 0:
        within = f"within the start timeout of {spec.start_timeout_ms / 1000:g} s"
        raise Problem("start_timeout", f"nothing was ready {within}")
    return Sandbox(
        id=new_id(),
        owner=owner,
        # On record is what it was promised, whatever the default becomes; the fingerprint is of what was asked for.
        spec=overcommit.filled(_promised(spec, idle_timeout_ms, max(MIN_START_MS, left_ms))),
        created_at_ms=now_ms,
        expires_at_ms=now_ms + spec.ttl_ms,
        fingerprint=spec.fingerprint(),
        idempotency_key=key,
        settings_digest=spec.settings_digest,
        egress=egress,
        asked_timeout_ms=0 if left_ms == spec.start_timeout_ms else spec.start_timeout_ms,
    )


def queued(wish: Sandbox, now_ms: int) -> Sandbox:
    """The candidate as it is admitted: it waits for its turn to start from its first version on."""
    return noted(apply(wish, Event.QUEUE), now_ms, Event.QUEUE)


def known(answer: Known | Withdrawn | Full, wish: Sandbox) -> Sandbox:
    """The sandbox that took the wish's key with the same parameters.

    Raises:
        Problem: there is none: deleted (the key was withdrawn), capacity_unavailable, conflict (other parameters).
    """
    key = wish.idempotency_key
    if isinstance(answer, Withdrawn):
        raise Problem("deleted", f"key {key} was deleted before its create arrived", idempotency_key=key)
    if isinstance(answer, Full):
        used, limit = answer.used, answer.limit
        detail = f"{used} of at most {limit} sandboxes are in use here: {TOTAL_KNOB}"
        raise Problem("capacity_unavailable", detail, retry_after_ms=1000, used=used, limit=limit, knob=TOTAL_KNOB)
    if answer.sandbox.fingerprint != wish.fingerprint:
        found = answer.sandbox.id
        detail = f"key {key} was used with other parameters for {found}"
        raise Problem("conflict", detail, reason="other_parameters", idempotency_key=key, sandbox_id=found)
    return answer.sandbox


def _promised(spec: SandboxSpec, idle_timeout_ms: int, left_ms: int) -> SandboxSpec:
    promised: Mapping[str, int | str | None] = {
        **({"egress": None} if spec.egress is not None else {}),
        **({DIGEST: ""} if spec.settings_digest else {}),
        **({"idle_timeout_ms": idle_timeout_ms} if spec.idle_timeout_ms is None and idle_timeout_ms else {}),
        **({"start_timeout_ms": left_ms} if left_ms != spec.start_timeout_ms else {}),
    }
    return spec.model_copy(update=promised) if promised else spec
