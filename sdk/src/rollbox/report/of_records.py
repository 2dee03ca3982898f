"""The report of a run that others have made: of what the platform has on record of its sandboxes. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rollbox.record import SandboxRecord
from rollbox.recording import phases
from rollbox.recording.recorder import MOST_SLOW, Ended, Failure, SlowCreate
from rollbox.recording.shares import Shares
from rollbox.recording.tails import Durations
from rollbox.report.run_report import RunReport
from rollbox.report.summary import SlowSandbox

RUNNING = "running"
"""What a sandbox does once it is ready: records do not tell when commands run."""


class _Span(NamedTuple):
    state: str
    from_ms: float
    to_ms: float


def of_records(name: str, records: Sequence[SandboxRecord], now_ms: float) -> RunReport:
    """Summarize a run by the records of its sandboxes; it is over when they have all ended.

    Args:
        name: of the run.
        records: all of its sandboxes.
        now_ms: the Unix time in ms.
    """
    spans = [span for record in records for span in _spans(record, now_ms)]
    began_ms = min((span.from_ms for span in spans), default=now_ms)
    until_ms = max((span.to_ms for span in spans), default=now_ms)
    shares = _shares(spans, began_ms)
    creates, tails = _creates(records), _tails(records)
    ends = Counter(Ended(end.cause, end.fault, end.mask_sample) for one in records if (end := one.end))
    failed = Counter(Failure("create", *_ended(one)) for one in records if one.end and one.ready_at_ms is None)
    masked = {kind.cause: count for kind, count in ends.most_common() if kind.masked and kind.cause != "deleted"}
    cold = Counter(one.cold_reason or "no_pool" for one in records if one.source != "warm" and one.ready_at_ms)
    return RunReport(
        name=name,
        began_at_ms=round(began_ms),
        wall_s=(until_ms - began_ms) / 1000,
        creates=creates,
        cold_reasons=dict(cold.most_common()),
        spent_s=RunReport.in_order(shares.spent_s(until_ms / 1000)),
        tails={kind: one.tail() for kind, one in sorted(tails.items())},
        execs={},
        failures=tuple({**kind._asdict(), "count": count} for kind, count in failed.most_common()),
        ends=tuple({**kind._asdict(), "count": count} for kind, count in ends.most_common()),
        masked=masked,
        rollouts={},
        live=sum(one.end is None for one in records),
        over_time=tuple(shares.over_time(until_ms / 1000)),
        slowest=tuple(SlowSandbox.of(one) for one in sorted(map(_slow, _started(records)), reverse=True)[:MOST_SLOW]),
    )


def _spans(record: SandboxRecord, now_ms: float) -> Iterator[_Span]:
    """What a sandbox did one after the other, for its owner: of one from a pool, from its claim on."""
    over_ms = max(record.created_at_ms, record.end.at_ms if record.end else now_ms)
    if record.source == "warm":
        yield _Span(RUNNING, record.claimed_at_ms or record.ready_at_ms or record.created_at_ms, over_ms)
    elif record.ready_at_ms is None:
        yield _Span("create.failed" if record.end else "create", record.created_at_ms, over_ms)
    else:
        at_ms = float(record.created_at_ms)
        for part, part_ms in phases.of_start(record.timings_ms, record.ready_at_ms - record.created_at_ms).items():
            yield _Span(f"create.{part}", at_ms, at_ms + part_ms)
            at_ms += part_ms
        yield _Span(RUNNING, at_ms, max(at_ms, over_ms))


def _shares(spans: Iterable[_Span], began_ms: float) -> Shares:
    moves: list[tuple[float, str | None, str | None]] = []
    for span in spans:
        if span.to_ms > span.from_ms:
            moves += [(span.from_ms, None, span.state), (span.to_ms, span.state, None)]
    found = Shares(began_ms / 1000)
    for at_ms, before, after in sorted(moves, key=lambda move: move[0]):
        found.move(at_ms / 1000, before, after)
    return found


def _creates(records: Iterable[SandboxRecord]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for one in records:
        state = one.source or "cold" if one.source == "warm" or one.ready_at_ms else "failed" if one.end else "starting"
        counts[state] += 1
    return dict(counts.most_common())


def _started(records: Iterable[SandboxRecord]) -> Iterator[SandboxRecord]:
    return (one for one in records if one.source != "warm" and (one.ready_at_ms or one.end))


def _tails(records: Iterable[SandboxRecord]) -> dict[str, Durations]:
    found: defaultdict[str, Durations] = defaultdict(Durations)
    for one in map(_slow, _started(records)):
        kind = "create.cold" if one.source == "cold" else "create.failed"
        found[kind].add(one.took_ms)
        if kind == "create.cold":
            for name, part_ms in one.parts_ms.items():
                found[f"{kind}.{name}"].add(part_ms)
    return found


def _slow(record: SandboxRecord) -> SlowCreate:
    over_ms = record.ready_at_ms or (record.end.at_ms if record.end else record.created_at_ms)
    took_ms = max(0.0, float(over_ms - record.created_at_ms))
    if record.ready_at_ms is None and record.end is not None:
        return SlowCreate(took_ms, record.id, record.image, record.end.cause, "", {"failed": took_ms})
    parts = phases.of_start(record.timings_ms, took_ms)
    return SlowCreate(took_ms, record.id, record.image, "cold", record.cold_reason, parts)


def _ended(record: SandboxRecord) -> tuple[str, str, bool]:
    assert record.end is not None  # noqa: S101 - its callers have looked
    return record.end.cause, record.end.fault, record.end.mask_sample
