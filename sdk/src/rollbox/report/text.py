"""The report of a run as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rollbox.printable import printable_lines
from rollbox.report import words

if TYPE_CHECKING:
    from rollbox.report.summary import Summary

_BAR = 24


def text(report: Summary) -> str:
    """Write a report as text; names that came from elsewhere are made harmless for terminals."""
    sections = (
        _head(report),
        ("where the wall time went, by what the sandboxes did", where(report.spent_s)),
        ("durations", _tails(report)),
        ("ends of sandboxes", _counted(report.ends, ("cause", "fault"))),
        ("failures", _counted(report.failures, ("what", "code", "fault"))),
        ("the slowest creates", _slowest(report)),
    )
    lines = [sections[0], *(f"{title}\n{body}" for title, body in sections[1:] if body)]
    return printable_lines("\n\n".join(lines)) + "\n"


def where(spent_s: Mapping[str, float]) -> str:
    """Write parts of a wall time with bars; the last line is their sum."""
    whole_s = sum(spent_s.values())
    if not whole_s:
        return ""
    rows = [
        (words.of(name), words.duration(1000 * part_s), f"{part_s / whole_s:.1%}", "#" * round(_BAR * part_s / whole_s))
        for name, part_s in spent_s.items()
    ]
    return table([*rows, ("in all", words.duration(1000 * whole_s), "100.0%", "")], right=(1, 2))


def table(rows: Iterable[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """Align rows in columns, two blanks in front.

    Args:
        rows: of as many cells each.
        right: the columns that are aligned to the right.
    """
    found = [*rows]
    widths = [max(map(len, cells)) for cells in zip(*found, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(wide) if at in right else cell.ljust(wide)
            for at, (cell, wide) in enumerate(zip(row, widths, strict=True))
        )
        for row in found
    )
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _head(report: Summary) -> str:
    told = [
        ("creates", report.creates, ""),
        ("execs", report.execs, ""),
        ("rollouts", report.rollouts, ""),
        ("masked", report.masked, " (leave these samples out of the loss)"),
        ("live", {"not deleted": report.live} if report.live else {}, ""),
    ]
    lines = [
        f"  {name:<10}" + ", ".join(f"{count} {kind}" for kind, count in counts.items()) + more
        for name, counts, more in told
        if counts
    ]
    return "\n".join([f"run {report.name}: {words.duration(1000 * report.wall_s)}", *lines])


def _tails(report: Summary) -> str:
    if not report.tails:
        return ""
    head = ("", "count", "p50", "p90", "p99", "max")
    rows = [
        (name, str(one.count), *map(words.duration, (one.p50_ms, one.p90_ms, one.p99_ms, one.max_ms)))
        for name, one in report.tails.items()
    ]
    return table([head, *rows], right=(1, 2, 3, 4, 5))


def _counted(rows: Iterable[Mapping[str, object]], names: tuple[str, ...]) -> str:
    told = [(str(row["count"]), *(str(row[name]) for name in names), words.mask(row)) for row in rows]
    return table([("count", *names, ""), *told], right=(0,)) if told else ""


def _slowest(report: Summary) -> str:
    lines = []
    for one in report.slowest:
        lines.append(f"  {words.duration(one.took_ms):>8}  {one.sandbox_id or '(no id)'}  {one.source}  {one.why}")
    if report.missing:
        lines.append(f"  timelines are missing: {report.missing}")
    return "\n".join(lines)
