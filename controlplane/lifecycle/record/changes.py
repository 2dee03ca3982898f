"""What is changed of a record besides its state: expiry, lease, public ports, idempotency key, a wait. Pure.

Each takes a record and returns the next version of it, or the same object where nothing is to be changed.
"""

from dataclasses import replace

from controlplane.egress import Compiled
from controlplane.lifecycle.record.timeline import noted
from controlplane.model import Lease, Sandbox, State


def extended(sandbox: Sandbox, expires_at_ms: int, now_ms: int) -> Sandbox:
    """Expires later, never earlier."""
    if not sandbox.state.counted or sandbox.expires_at_ms >= expires_at_ms:
        return sandbox
    return noted(replace(sandbox, expires_at_ms=expires_at_ms, version=sandbox.version + 1), now_ms, "extend")


def leased(sandbox: Sandbox, lease: Lease | None, now_ms: int) -> Sandbox:
    """Belongs to this lease, or to none (None)."""
    if not sandbox.state.counted or sandbox.spec.lease == lease:
        return sandbox
    spec = sandbox.spec.model_copy(update={"lease": lease})
    return noted(
        replace(sandbox, spec=spec, version=sandbox.version + 1), now_ms, "detach" if lease is None else "lease"
    )


def port_opened(sandbox: Sandbox, port: int, now_ms: int, *, public: bool) -> Sandbox:
    """Has this port open to anyone, or not any more.

    Args:
        sandbox: before the change.
        port: from 1 to 65535.
        now_ms: Unix time of the change.
        public: whether it is open from now on.

    Returns:
        the record after the change; the same object when nothing changes, as for a sandbox that has ended.
    """
    after = sandbox.with_port(port, public=public, now_ms=now_ms)
    return sandbox if after is sandbox or not sandbox.state.counted else noted(after, now_ms, "port")


def egress_switched(sandbox: Sandbox, policy: Compiled, now_ms: int) -> Sandbox:
    """Has this network policy from now on (Unix ms); it is in force once its egress replica says so."""
    after = sandbox.with_egress(sandbox.egress.switched(policy, now_ms))
    return sandbox if after is sandbox or not sandbox.state.counted else noted(after, now_ms, "egress")


def egress_applied(sandbox: Sandbox, revision: int, cut: int) -> Sandbox:
    """Has this revision of its network policy in force; so many connections were closed for it."""
    return sandbox.with_egress(sandbox.egress.confirmed(revision, cut)) if sandbox.state.counted else sandbox


def waited_for(sandbox: Sandbox, now_ms: int, word: str) -> Sandbox:
    """Waits for a copy of its image or for room on a node, not for its turn: told in its timeline by this word."""
    if sandbox.state is not State.QUEUED:
        return sandbox
    return noted(replace(sandbox, version=sandbox.version + 1), now_ms, word)


def pulled_since(sandbox: Sandbox, since_ms: int) -> Sandbox:
    """Has been waiting for its node to pull its image since a moment (Unix ms): told in its timeline."""
    if sandbox.state is not State.STARTING:
        return sandbox
    # The node's clock may differ.
    at_ms = max([since_ms, *(one.at_ms for one in sandbox.timeline)])
    return noted(replace(sandbox, version=sandbox.version + 1), at_ms, "pull")


def pulled_whole(sandbox: Sandbox, ran: str, why: str, now_ms: int) -> Sandbox:
    """Goes on with the plain copy of its image, since it did not get ready from the converted one.

    Args:
        sandbox: before the change.
        ran: the plain copy's digest.
        why: for people.
        now_ms: Unix time of the change.
    """
    if sandbox.state is not State.STARTING:
        return sandbox
    changed = replace(sandbox, image_ran=ran, image_pulled="full", image_pulled_why=why, version=sandbox.version + 1)
    return noted(changed, now_ms, "whole")


def draining(sandbox: Sandbox, at_ms: int | None, now_ms: int, *, exact: bool = False) -> Sandbox:
    """Ends at this moment (Unix ms) at the latest, since its node is drained; None: its node is not any more.

    Args:
        sandbox: before the change.
        at_ms: the moment.
        now_ms: Unix time of the change.
        exact: see ``Sandbox.draining_exact``.
    """
    if not sandbox.state.counted or sandbox.draining_at_ms == at_ms:
        return sandbox
    changed = replace(sandbox, draining_at_ms=at_ms, draining_exact=exact, version=sandbox.version + 1)
    return noted(changed, now_ms, "undrain" if at_ms is None else "drain")


def key_freed(sandbox: Sandbox) -> Sandbox:
    """Has given its idempotency key back: another sandbox can take it. Also of one that has ended."""
    if sandbox.idempotency_key is None:
        return sandbox
    return replace(sandbox, idempotency_key=None, version=sandbox.version + 1)
