"""The timeline in a record: a bounded list of what happened to a sandbox. Pure."""

from typing import Final

from controlplane.model.sandbox import Moment, State

# About 1 KiB of a record. A sandbox has seven states; the other entries are repeated calls of its owner.
MOST_MOMENTS: Final = 32
# The first entries are never dropped: an owner may ask at the end why the start was slow.
FIRST_KEPT: Final = 8


def with_entry(timeline: tuple[Moment, ...], at_ms: int, state: State, word: str) -> tuple[Moment, ...]:
    """The timeline with one more entry; an entry like the last one replaces it.

    Args:
        timeline: oldest first.
        at_ms: Unix time.
        state: the sandbox's state from then on.
        word: the name of the event, or the cause of the end.
    """
    if timeline and (timeline[-1].state, timeline[-1].word) == (state, word):
        timeline = timeline[:-1]
    if len(timeline) >= MOST_MOMENTS:
        timeline = timeline[:FIRST_KEPT] + timeline[FIRST_KEPT - MOST_MOMENTS + 1 :]
    return (*timeline, Moment(at_ms, state, word))
