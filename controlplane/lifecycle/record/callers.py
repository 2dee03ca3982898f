"""Which calls want a sandbox that is created with a key: those that wait for it, and those that have got it. Pure.

A call is one create as its client sees it, with all its retries; the client sends the same ``Call-Id`` with each try.
Only the last try of a call counts: the server may notice that an earlier try has disconnected only after the retry has
come. A call can withdraw only its own interest; a sandbox that no call wants is abandoned.
"""

import secrets
from dataclasses import replace
from typing import Final

from controlplane.model import Sandbox

# How long an abandoned sandbox waits for another create with its key; clients retry a lost call within seconds.
ABANDONED_MS: Final = 30_000
# The most callers in a record, of some 50 bytes each.
MOST_CALLERS: Final = 16
# Stands for callers that are not known: there were too many, or the store has lost them. No call can withdraw it, so
# such a sandbox is never abandoned.
OTHERS: Final = "*"


def new_caller(call_id: str = "") -> str:
    """A name for one try of a call, ``CALL_ID/RANDOM``; a call without an id gets a random id."""
    return f"{call_id or secrets.token_hex(8)}/{secrets.token_hex(4)}"


def call_of(caller: str) -> str:
    """The id of the call to which this try belongs."""
    return caller.partition("/")[0]


def joined(sandbox: Sandbox, caller: str) -> Sandbox:
    """The record with this try among its callers; it replaces earlier tries of the same call."""
    unknown = not sandbox.callers and sandbox.abandoned_at_ms is None
    callers = (OTHERS, caller) if unknown else (*_without(sandbox, call_of(caller)), caller)
    if len(callers) > MOST_CALLERS:
        callers = (OTHERS, *callers[1 - MOST_CALLERS :])
    return _changed(sandbox, callers, None)


def left(sandbox: Sandbox, caller: str, now_ms: int) -> Sandbox:
    """The record after this try disconnected before it got the sandbox; itself if the try is not a caller."""
    if caller not in sandbox.callers:
        return sandbox
    callers = tuple(one for one in sandbox.callers if one != caller)
    return _changed(sandbox, callers, sandbox.abandoned_at_ms if callers else now_ms)


def withdrawn(sandbox: Sandbox, call_id: str, now_ms: int) -> Sandbox:
    """The record after a call withdrew its create; itself if the call has not asked for this sandbox."""
    callers = _without(sandbox, call_id)
    if callers == sandbox.callers:
        return sandbox
    return _changed(sandbox, callers, sandbox.abandoned_at_ms if callers else now_ms)


def _without(sandbox: Sandbox, call_id: str) -> tuple[str, ...]:
    return tuple(one for one in sandbox.callers if call_of(one) != call_id)


def _changed(sandbox: Sandbox, callers: tuple[str, ...], abandoned_at_ms: int | None) -> Sandbox:
    if sandbox.end is not None:
        return sandbox
    return replace(sandbox, callers=callers, abandoned_at_ms=abandoned_at_ms, version=sandbox.version + 1)
