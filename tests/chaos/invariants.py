"""What must hold whatever died: judged from logs and from a look at everything once it is at rest. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.asks import Asks
from tests.chaos.events import Event

# How much the clocks of records and the moments of asking may differ.
SLACK_S = 5.0
# Control planes keep ends for two minutes, and two of them never die together here.
REMEMBERED_S = 100.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One invariant: how often it was tried, and each time that it did not hold, in a sentence."""

    name: str
    tried: int
    violations: Sequence[str] = ()

    def __add__(self, other: Verdict) -> Verdict:
        """Two looks at the same invariant as one."""
        return Verdict(self.name, self.tried + other.tried, (*self.violations, *other.violations))


@dataclass(frozen=True, slots=True)
class ApiRecord:
    """A record as the API tells it."""

    owner: str
    live: bool
    cause: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything at rest, from outside.

    Attributes:
        cluster: whose each sandbox is by the cluster's own text; what a pool keeps is `pool:NAME`'s.
        live: whose each live sandbox is by the owners' lists.
        records: of every id that was ever answered; None: the API does not know it.
        warm: how many the pools say that they keep.
        used, counted: by owner and resource, as the quota tells it, and added up over the list.
    """

    cluster: Mapping[str, str]
    live: Mapping[str, str]
    warm: int
    used: Mapping[str, Mapping[str, int]]
    counted: Mapping[str, Mapping[str, int]]
    records: Mapping[str, ApiRecord | None] = field(default_factory=dict)


def double_claims(events: Sequence[Event]) -> Verdict:
    """One sandbox for one create: no id for two keys or owners, no key with two ids."""
    emptied = [event.at_s for event in events if event.what == "store.emptied"]
    asks, answered = Asks(events), [event for event in events if event.what == "create.answered"]
    takers: dict[str, set[str]] = defaultdict(set)
    first: dict[tuple[str, str], Event] = {}
    wrong = []
    for event in answered:
        takers[event.id].add(f"{event.owner}/{event.key}")
        before = first.setdefault((event.owner, event.key), event)
        # One that was found dead when it was claimed is replaced.
        died = (death := asks.death(before.id)) is not None and death.at_s <= event.at_s
        if before.id != event.id and not died and not _forgotten(asks, before, event.at_s, emptied):
            wrong.append(f"{event.owner}/{event.key} was answered {before.id}, then {event.id} ({event.op})")
    wrong += [f"{name} was given to {', '.join(sorted(two))}" for name, two in takers.items() if len(two) > 1]
    return Verdict("double claims", len(answered), wrong)


def orphans(seen: Seen, started: int) -> Verdict:
    """Cluster and record name the same sandboxes, and the same owners."""
    wrong, kept = [], 0
    for name, owner in seen.cluster.items():
        if owner.startswith("pool:") and name not in seen.live:
            kept += 1
        elif name not in seen.live:
            wrong.append(f"{name} of {owner} is on the cluster and on no record that lives")
        elif seen.live[name] != owner:
            wrong.append(f"{name} is {seen.live[name]}'s on record and {owner}'s on the cluster")
    wrong += [f"{name} of {seen.live[name]} lives on record only" for name in seen.live.keys() - seen.cluster.keys()]
    if kept != seen.warm:
        wrong.append(f"{kept} on the cluster belong to pools, which know of {seen.warm}")
    return Verdict("orphans", started, wrong)


def quota_drift(seen: Seen, changes: int) -> Verdict:
    """What quotas count is what there is."""
    wrong = [
        f"{owner} uses {used.get(name, 0)} {name} by his quota, {counted.get(name, 0)} by the list"
        for owner, used in seen.used.items()
        for counted in (seen.counted.get(owner, {}),)
        for name in sorted(used.keys() | counted.keys())
        if used.get(name, 0) != counted.get(name, 0)
    ]
    return Verdict("quota drift", changes, wrong)


def lost_results(events: Sequence[Event], seen: Seen) -> Verdict:
    """What was answered stays known: a sandbox lives or its end is told, a result had a run, a delete has deleted."""
    emptied = [event.at_s for event in events if event.what == "store.emptied"]
    asks, tried, wrong = Asks(events), 0, []
    ran = {event.nonce: event.id for event in events if event.what == "cluster.ran"}
    answered = {event.id: event for event in _first_answers(events)}
    for event in events:
        record = seen.records.get(event.id)
        if event.what == "create.answered":
            tried += 1
            if record is None and not _forgotten(asks, event, float("inf"), emptied):
                wrong.append(f"{event.id} was answered to {event.owner}/{event.key} and is unknown")
        elif event.code in ("sandbox_not_found", "sandbox_forgotten") and event.id in answered:
            if not _forgotten(asks, answered[event.id], event.at_s, emptied):
                wrong.append(f"{event.id} was answered and is not found by {event.what} ({event.op})")
        elif event.what == "exec.answered":
            tried += 1
            if ran.get(event.nonce) != event.id:
                wrong.append(f"exec {event.nonce} was answered for {event.id} and ran in {ran.get(event.nonce)}")
        elif event.what == "delete.answered" and event.id:
            tried += 1
            if record is not None and record.live:
                wrong.append(f"{event.id} was deleted, answered so, and lives")
    return Verdict("lost results", tried, wrong)


def unasked_ends(events: Sequence[Event], seen: Seen) -> Verdict:
    """What was answered ends because somebody asked for it, by its own time, or as what it died of on the cluster."""
    asks, tried, wrong = Asks(events), 0, []
    end_s = events[-1].at_s if events else 0.0
    for event in _first_answers(events):
        record = seen.records.get(event.id)
        if record is None or record.live:
            continue
        tried += 1
        leased = record.by.startswith("lease ") and asks.leased(event)
        due = record.cause == "ttl_expired" and asks.may_expire_by(event, end_s + SLACK_S)
        asked = record.cause in ("deleted", "create_abandoned") and asks.delete_s(event) is not None
        deaths = asks.deaths(event.id)
        # Whoever claims it, or asks it for a proof of life, may notice before the cluster says what it was.
        died = bool(deaths) and record.cause in (*deaths, "sandbox_lost")
        if not (leased or due or asked or died):
            wrong.append(f"{event.id} of {event.owner}/{event.key} ended as {record.cause} by {record.by}")
    return Verdict("ends that nobody asked for", tried, wrong)


def unnoticed_deaths(events: Sequence[Event], seen: Seen) -> Verdict:
    """What was answered and died on the cluster does not live on record."""
    asks, tried, wrong = Asks(events), 0, []
    for event in _first_answers(events):
        record, death = seen.records.get(event.id), asks.death(event.id)
        if record is not None and death is not None:
            tried += 1
            wrong += [f"{event.id} of {event.owner} died as {death.code} and lives on record"] if record.live else []
    return Verdict("deaths that nobody noticed", tried, wrong)


def runs_twice(events: Sequence[Event]) -> Verdict:
    """A call of a user runs once, whatever was sent again."""
    runs: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if event.what == "cluster.ran":
            runs[event.nonce].append(event.id)
    wrong = [f"exec {nonce} ran in {', '.join(ids)}" for nonce, ids in runs.items() if len(ids) > 1]
    return Verdict("runs twice", len(runs), wrong)


def judge(events: Sequence[Event], seen: Seen) -> list[Verdict]:
    """Every invariant."""
    started = _count(events, ("cluster.start",))
    changes = _count(events, ("create.asked", "delete.asked"))
    return [
        double_claims(events),
        orphans(seen, started),
        quota_drift(seen, changes),
        lost_results(events, seen),
        unasked_ends(events, seen),
        unnoticed_deaths(events, seen),
        runs_twice(events),
    ]


def _count(events: Iterable[Event], kinds: tuple[str, ...]) -> int:
    return sum(event.what in kinds for event in events)


def _first_answers(events: Sequence[Event]) -> Iterable[Event]:
    return {event.id: event for event in reversed(events) if event.what == "create.answered"}.values()


def _forgotten(asks: Asks, answered: Event, before_s: float, emptied: Sequence[float]) -> bool:
    """Whether its end may have gone with a store that was emptied: old ends are nowhere else, what lives is."""
    since_s = answered.at_s - SLACK_S
    return any(asks.may_have_ended(answered, at_s - REMEMBERED_S) for at_s in emptied if since_s <= at_s <= before_s)
