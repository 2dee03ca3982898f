"""How many of a run's sandboxes can run at the same time, and which limits prevent more. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.errors import TABLE, Code, Problem
from controlplane.lifecycle.waiting.gates.quota import TOTAL, TOTAL_KNOB, amount, knob
from controlplane.model import RESOURCES, Limits, Usage
from controlplane.scaling import Prospect

# A resource that a sandbox holds only until it is ready: its limit slows a run down, but does not bound it.
_PASSING: Final = "starting"

# The name of the nodes' room, beside the resources of the quota and the installation's total.
CAPACITY: Final = "capacity"


@dataclass(frozen=True, slots=True)
class Facts:
    """The input of a preflight.

    Attributes:
        count: how many sandboxes the run wants at the same time.
        each: what one of them uses.
        limits, used: of the owner.
        in_all: sandboxes of all owners, with the warm ones.
        warm: warm sandboxes that the run could claim at once.
        giving: warm sandboxes of other templates, which end to make room for creates.
        room: how many more of them the nodes have room for; None: not known.
        room_when_empty: how many the nodes have room for when no sandbox runs; None: not known.
        room_left: what the nodes have left, in words.
        starts_at_once: how many starts can be under way at once.
        start_ms: how long a start takes; None: not known yet.
        refused: why no such sandbox can be created at all.
        may_come: the nodes that node pools may bring for the run.
    """

    owner: str
    count: int
    each: Usage
    limits: Limits
    used: Usage
    in_all: int
    warm: int
    room: int | None
    room_when_empty: int | None
    starts_at_once: int
    start_ms: int | None
    giving: int = 0
    room_left: str = ""
    refused: Sequence[Problem] = ()
    may_come: Sequence[Prospect] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """One limit that applies to the run.

    Attributes:
        resource: a field of the quota, ``total`` (the installation's sandboxes) or ``capacity`` (the nodes).
        needed: by the whole run.
        used: of it, now.
        limit: 0 = none.
        places: how many of the run's sandboxes it allows now; None = any number.
        most: how many it allows when nothing else of the owner's (for shared limits: of any owner's) runs, and all
            nodes have come that may.
    """

    resource: str
    needed: int
    used: int
    limit: int
    places: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason why the run cannot have all its sandboxes now.

    Attributes:
        for_good: whether waiting does not help.
    """

    code: Code
    detail: str
    hint: str
    for_good: bool


@dataclass(frozen=True, slots=True)
class Forecast:
    """The result of a preflight.

    Attributes:
        fits: whether all sandboxes of the run can run together now.
        may_have: how many can run together now.
        most: how many could if nothing else ran.
        estimate_ms: the time until ``may_have`` sandboxes are ready; None: not known.
        may_come: the nodes that node pools may bring for the run, whether or not it needs them.
    """

    fits: bool
    count: int
    may_have: int
    most: int
    warm: int
    needs: Sequence[Need]
    blockers: Sequence[Blocker]
    estimate_ms: int | None
    may_come: Sequence[Prospect] = ()


def forecast(facts: Facts) -> Forecast:
    """Computes the preflight of a run."""
    needs = [*_quota_needs(facts), *_shared_needs(facts)]
    blockers = [_refusal(problem) for problem in facts.refused]
    blockers += [_shortage(facts, need) for need in needs if need.places is not None and need.places < facts.count]
    may_have = 0 if facts.refused else _least(facts.count, [need.places for need in needs])
    most = 0 if facts.refused else _least(facts.count, [need.most for need in needs])
    estimate_ms = None if may_have == 0 else _estimate_ms(facts, may_have)
    return Forecast(not blockers, facts.count, may_have, most, facts.warm, needs, blockers, estimate_ms, facts.may_come)


def _quota_needs(facts: Facts) -> list[Need]:
    needs: list[Need] = []
    for name in RESOURCES:
        each, limit, used = (getattr(one, name) for one in (facts.each, facts.limits.quota, facts.used))
        if name == _PASSING or not each:
            continue
        places = max(0, (limit - used) // each) if limit else None
        needs.append(Need(name, each * facts.count, used, limit, places, limit // each if limit else None))
    return needs


def _shared_needs(facts: Facts) -> list[Need]:
    needs: list[Need] = []
    if total := facts.limits.total:
        # Warm sandboxes are counted already: claiming one takes no more room.
        places = max(0, total - facts.in_all) + min(facts.warm + facts.giving, facts.in_all)
        # There may be more warm sandboxes than the total, if that was lowered meanwhile.
        needs.append(Need(TOTAL, facts.count, facts.in_all, total, places, max(total, places)))
    if facts.room is not None and facts.room_when_empty is not None:
        most = max(facts.room_when_empty, facts.room + facts.warm) + sum(one.sandboxes for one in facts.may_come)
        used = max(0, facts.room_when_empty - facts.room)
        needs.append(Need(CAPACITY, facts.count, used, facts.room_when_empty, facts.room + facts.warm, most))
    return needs


def _shortage(facts: Facts, need: Need) -> Blocker:
    for_good = need.most is not None and need.most < facts.count
    if need.resource == CAPACITY:
        return _no_room(facts, need, for_good)
    if need.resource == TOTAL:
        detail = f"this needs {facts.count} sandboxes; {need.used} of at most {need.limit} are in use here"
        return Blocker("capacity_unavailable", detail, f"Have {TOTAL_KNOB} raised, or run fewer.", for_good)
    detail = (
        f"this needs {amount(need.resource, need.needed)}; {facts.owner} may have {amount(need.resource, need.limit)} "
        f"and uses {amount(need.resource, need.used)}"
    )
    return Blocker("quota_exceeded", detail, f"An operator raises it: {knob(facts.owner, need.resource)}", for_good)


def _no_room(facts: Facts, need: Need, for_good: bool) -> Blocker:
    alone = max(facts.room_when_empty or 0, need.places or 0)
    detail = f"{need.places} of {facts.count} fit now, {alone} when no other sandbox runs: {facts.room_left}"
    said = "; ".join([detail, *(one.words() for one in facts.may_come)])
    # What a pool that pauses would bring is counted; of one that has told nothing it is not known.
    for_good = for_good and not any(one.passes and not one.nodes for one in facts.may_come)
    return Blocker("capacity_unavailable", said, TABLE["capacity_unavailable"].hint, for_good)


def _refusal(problem: Problem) -> Blocker:
    return Blocker(problem.code, problem.detail, problem.hint, for_good=problem.entry.retry == "never")


def _least(count: int, bounds: Sequence[int | None]) -> int:
    return min([count, *(bound for bound in bounds if bound is not None)])


def _estimate_ms(facts: Facts, may_have: int) -> int | None:
    cold = max(0, may_have - facts.warm)
    if not cold:
        return 0
    at_once = min([one for one in (facts.starts_at_once, facts.limits.quota.starting or None) if one is not None])
    if facts.start_ms is None or at_once <= 0:
        return None
    return -(-cold // at_once) * facts.start_ms
