"""What follows from a change of a record, and the form in which the ledger publishes it. Pure."""

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Self

from controlplane.model import UP, Sandbox, State


class Effect(StrEnum):  # a plain ``Enum`` hashes in Python, and each transition is looked at for a dozen effects
    """What follows from a transition. The part that is responsible subscribes to the ledger; repeating one is safe."""

    FREE = auto()  # its quota can be used by others
    SETTLE = auto()  # its start is over, for better or worse: another one may begin
    ROUTE = auto()  # gateways are told where it is, and which of its ports are public
    UNROUTE = auto()  # gateways are told why it ended
    STOP = auto()  # it is taken off the cluster


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a record, as the ledger publishes it.

    Attributes:
        before: the record until then; None where only the outcome is known: just admitted, claimed or adopted, read
            again, or stored by another replica.
        after: the record from then on.
        effects: what follows from it; of an unknown ``before``, all that may not have been done yet.
        here: whether this replica has made the change.
    """

    before: Sandbox | None
    after: Sandbox
    effects: frozenset[Effect]
    here: bool

    @classmethod
    def of(cls, before: Sandbox | None, after: Sandbox, *, here: bool) -> Self:
        """The transition between two records of one sandbox.

        Args:
            before: the record until then, if it is known.
            after: the record from then on.
            here: whether this replica has made the change.
        """
        return cls(before, after, effects_of(before, after), here)


def effects_of(before: Sandbox | None, after: Sandbox) -> frozenset[Effect]:
    """What follows from a change. The only place that derives routes, stops and freed quotas from states."""
    found = set[Effect]()
    if not after.state.counted and (before is None or before.state.counted):
        found.add(Effect.FREE)
    if not after.state.unready and (before is None or before.state.unready):
        found.add(Effect.SETTLE)
    if after.state in UP and (before is None or _route(before) != _route(after)):
        found.add(Effect.ROUTE)
    if after.end is not None and (before is None or before.end is None):
        found.add(Effect.UNROUTE)
    if after.state is State.ENDING and (before is None or before.state is not State.ENDING):
        found.add(Effect.STOP)
    return frozenset(found)


def _route(sandbox: Sandbox) -> tuple[object, ...]:
    """What gateways know of it while it is up."""
    where = (sandbox.state in UP, sandbox.address, sandbox.generation, sandbox.owner)
    return (*where, sandbox.ports_revision, sandbox.drained_by_ms)
