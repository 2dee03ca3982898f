"""Entries of a timeline that are no events of the table of states, and its text for people. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from controlplane.errors import TABLE, Problem
from controlplane.model import WAITS_FOR_ROOM, Moment, Sandbox, State
from controlplane.model.states import Event
from controlplane.model.timeline import with_entry

WORDS: Final = {
    "request": "asked for",
    Event.QUEUE: "waits for its turn to start",
    "copy": "its image is copied into the private registry",
    "convert": "its image is converted, so that nodes can mount it while they fetch it",
    WAITS_FOR_ROOM: "waits for room: no node has enough left",
    Event.START: "its containers are asked for",
    "pull": "its node pulls its image",
    "whole": "begun anew, with its image whole",
    Event.READY: "a command has run in it: ready",
    Event.WARM: "ready in its pool",
    Event.CLAIM: "claimed by its owner",
    Event.CONFIRM: "nothing of it is left",
    "extend": "lives longer",
    "lease": "given to a lease",
    "detach": "taken off its lease: it outlives its client",
    "port": "a port was opened to anyone, or closed again",
    "egress": "its network policy was switched",
    "drain": "its node is drained: it ends soon, start what follows in a new sandbox",
    "undrain": "its node is not drained any more",
    "adopt": "found running and put on record again",
}


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """One line of a timeline, for people.

    Attributes:
        after_ms: since the line before.
        word: the event, or the cause of the end.
        text: ``word`` as a phrase.
    """

    at_ms: int
    after_ms: int
    state: State
    word: str
    text: str


def noted(sandbox: Sandbox, at_ms: int, word: str) -> Sandbox:
    """The record with one more entry; an entry like the last one replaces it."""
    return replace(sandbox, timeline=with_entry(sandbox.timeline, at_ms, sandbox.state, word))


def extended_at_ms(sandbox: Sandbox) -> int | None:
    """When its expiry was last extended (Unix ms); None: never, or the entry was dropped."""
    return max((one.at_ms for one in sandbox.timeline if one.word == "extend"), default=None)


def story(sandbox: Sandbox) -> tuple[TimelineLine, ...]:
    """The timeline of a sandbox for people, oldest first, with entries that the record only implies."""
    moments = [Moment(sandbox.created_at_ms, State.REQUESTED, "request"), *sandbox.timeline]
    words = {one.word for one in moments}
    if sandbox.claimed_at_ms is not None and Event.CLAIM not in words:
        # The store makes the claim in one step with the whole change, and writes no entry.
        moments.append(Moment(sandbox.claimed_at_ms, State.RUNNING, Event.CLAIM))
    # A record that was rebuilt from the cluster, or that a version without timelines wrote.
    if sandbox.ready_at_ms is not None and not words & {Event.READY, Event.WARM}:
        state = State.WARM if sandbox.pool else State.RUNNING
        moments.insert(1, Moment(sandbox.ready_at_ms, state, Event.WARM if sandbox.pool else Event.READY))
    if sandbox.end is not None and sandbox.end.cause not in words:
        moments.append(Moment(sandbox.end.at_ms, State.ENDING, sandbox.end.cause))
    moments.sort(key=lambda one: one.at_ms)
    before = [moments[0], *moments[:-1]]
    return tuple(
        TimelineLine(one.at_ms, one.at_ms - last.at_ms, one.state, one.word, _text(sandbox, one))
        for one, last in zip(moments, before, strict=True)
    )


def _text(sandbox: Sandbox, moment: Moment) -> str:
    if sandbox.end is not None and moment.word == sandbox.end.cause:
        return f"{TABLE[sandbox.end.cause].title.rstrip('.')} ({sandbox.end.by})"
    text = WORDS.get(moment.word, moment.word)
    begun = "whole" if any(one.word == "whole" for one in sandbox.timeline) else Event.START
    if moment.word == begun and sandbox.image_pulled_why:
        how = "mounted while it is fetched" if sandbox.image_pulled == "lazy" else "pulled whole"
        text = f"{text}; its image is {how}: {sandbox.image_pulled_why}"
    return text


def summary(sandbox: Sandbox, refusal: Problem | None = None, pulling: str = "", silence: str = "") -> str:
    """The state of a sandbox, or why it ended, in one sentence.

    Args:
        sandbox: the record.
        refusal: why it fits on no node.
        pulling: what its node pulls, for people; empty: nothing, or that is not known.
        silence: that it does not answer now, for people; empty: it does, or was not asked.
    """
    if sandbox.end is not None:
        return f"It ended: {sandbox.end.detail.rstrip('.')}."
    if sandbox.state is State.RUNNING and silence:
        lasts = "If that lasts it ends as sandbox_lost: after a minute, or five where its node has no other sandbox"
        return f"It does not answer ({silence.rstrip('.')}), and its node reports no end of it. {lasts}."
    if sandbox.state is State.RUNNING:
        return "It runs." if sandbox.draining_at_ms is None else "It runs, and its node is drained: it ends soon."
    if refusal is not None:
        return f"It waits for room: {refusal.code}: {refusal.detail.rstrip('.')}."
    if pulling:
        return f"It is {sandbox.state}: {pulling}."
    last = story(sandbox)[-1]
    return f"It is {sandbox.state}: {last.text}."
