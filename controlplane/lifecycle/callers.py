"""Which calls want a sandbox that is created with a key: those that wait for it, and those that were given it. Pure.

A call is a create as its client sees it, with all its tries; it says its name (``Call-Id``) with each of them. Of one
call the last try counts: the server hears that an earlier one has hung up when it hears it, perhaps later. What a call
takes back is its own interest; a sandbox that no call wants any more is abandoned.
"""

import secrets
from dataclasses import replace
from typing import Final

from controlplane.model import Sandbox

# How long an abandoned sandbox waits for its key to be asked for again; clients repeat a lost call within seconds.
ABANDONED_MS: Final = 30_000
# In a record, some 50 bytes each.
MOST_CALLERS: Final = 16
# In the place of callers that are not known any more: there were too many, or the store forgot them. No call takes it
# back, so such a sandbox is never abandoned.
OTHERS: Final = "*"


def new_caller(call_id: str = "") -> str:
    """The name of one try of a call; of a call that says no name, one that nobody else has."""
    return f"{call_id or secrets.token_hex(8)}/{secrets.token_hex(4)}"


def call_of(caller: str) -> str:
    """The name of the call whose try this is."""
    return caller.partition("/")[0]


def joined(sandbox: Sandbox, caller: str) -> Sandbox:
    """The record once this try wants it too; earlier tries of its call do not count any more."""
    unknown = not sandbox.callers and sandbox.abandoned_at_ms is None
    callers = (OTHERS, caller) if unknown else (*_without(sandbox, call_of(caller)), caller)
    if len(callers) > MOST_CALLERS:
        callers = (OTHERS, *callers[1 - MOST_CALLERS :])
    return _changed(sandbox, callers, None)


def left(sandbox: Sandbox, caller: str, now_ms: int) -> Sandbox:
    """The record once this try has gone before it was given the sandbox; itself if the try does not count."""
    if caller not in sandbox.callers:
        return sandbox
    callers = tuple(one for one in sandbox.callers if one != caller)
    return _changed(sandbox, callers, sandbox.abandoned_at_ms if callers else now_ms)


def withdrawn(sandbox: Sandbox, call_id: str, now_ms: int) -> Sandbox:
    """The record once a call takes back what it asked for; itself if it has not asked for this sandbox."""
    callers = _without(sandbox, call_id)
    if callers == sandbox.callers:
        return sandbox
    return _changed(sandbox, callers, sandbox.abandoned_at_ms if callers else now_ms)


def _without(sandbox: Sandbox, call_id: str) -> tuple[str, ...]:
    return tuple(one for one in sandbox.callers if call_of(one) != call_id)


def _changed(sandbox: Sandbox, callers: tuple[str, ...], abandoned_at_ms: int | None) -> Sandbox:
    return replace(sandbox, callers=callers, abandoned_at_ms=abandoned_at_ms, version=sandbox.version + 1)
