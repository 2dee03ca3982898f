"""The report of a run as one HTML page: without scripts, and it loads nothing. Pure; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING

from rollbox.report import frame, plots, words

if TYPE_CHECKING:
    from rollbox.report.summary import SlowSandbox, Summary


def page(report: Summary) -> str:
    """Write a report as a page."""
    began = frame.clock(report.began_at_ms)
    creates = {
        name: tail for name, tail in report.tails.items() if name in ("create.warm", "create.cold", "create.failed")
    }
    execs = {name: tail for name, tail in report.tails.items() if name in ("exec", "exec.run", "exec.queue")}
    sections = (
        ("Where the wall time went", _where(report)),
        ("Sandboxes over the time", plots.over_time(report.over_time, report.wall_s) if report.over_time else ""),
        ("Creates: share that was ready within a time", plots.distributions(creates)),
        ("Commands: share that was over within a time", plots.distributions(execs)),
        ("Durations", _tails(report)),
        ("How sandboxes ended", _counted(report.ends, ("cause", "fault"))),
        ("Failures", _counted(report.failures, ("what", "code", "fault"))),
        ("The slowest creates", _slowest(report)),
    )
    sub = f"{words.duration(1000 * report.wall_s)} from {began}"
    return frame.document(f"run {report.name}", sub, _cards(report), sections)


def _cards(report: Summary) -> str:
    masked, failed = sum(report.masked.values()), report.creates.get("failed", 0)
    cards = [(kind, count, kind == "failed") for kind, count in report.creates.items()]
    told = [(f"creates {kind}", count, bad) for kind, count, bad in cards]
    told += [(f"execs {kind}", count, False) for kind, count in report.execs.items()]
    told += [(f"rollouts {kind}", count, False) for kind, count in report.rollouts.items()]
    told.append(("samples masked", masked, bool(masked or failed)))
    if report.live:
        told.append(("not deleted", report.live, True))
    return frame.cards(told)


def _where(report: Summary) -> str:
    whole_s = sum(report.spent_s.values())
    if not whole_s:
        return ""
    fills = plots.colours(report.spent_s)
    rows = (
        f'<tr><td><i style="background:{fills[name]}"></i>{escape(words.of(name))}</td>'
        f'<td class="n">{words.duration(1000 * part_s)}</td><td class="n">{part_s / whole_s:.1%}</td></tr>'
        for name, part_s in report.spent_s.items()
    )
    total = f'<tr><th>in all</th><th class="n">{words.duration(1000 * whole_s)}</th><th class="n">100.0%</th></tr>'
    note = (
        "At each moment the time is divided evenly among the sandboxes that there are, by what each does: "
        "the parts add up to the wall time of the run."
    )
    return f'{plots.bar(report.spent_s)}<p class="sub">{note}</p><table>{"".join(rows)}{total}</table>'


def _tails(report: Summary) -> str:
    if not report.tails:
        return ""
    head = "".join(f'<th class="n">{name}</th>' for name in ("count", "p50", "p90", "p99", "max"))
    rows = (
        f'<tr><td>{escape(name)}</td><td class="n">{one.count}</td>'
        + "".join(f'<td class="n">{words.duration(ms)}</td>' for ms in (one.p50_ms, one.p90_ms, one.p99_ms, one.max_ms))
        + "</tr>"
        for name, one in report.tails.items()
    )
    return f'<div class="scroll"><table><tr><th></th>{head}</tr>{"".join(rows)}</table></div>'


def _counted(rows: Iterable[Mapping[str, object]], names: tuple[str, ...]) -> str:
    told = [
        f'<tr><td class="n">{row["count"]}</td>'
        + "".join(f"<td>{escape(str(row[name]))}</td>" for name in names)
        + f"<td>{words.mask(row)}</td></tr>"
        for row in rows
    ]
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<table><tr><th class="n">count</th>{head}<th></th></tr>{"".join(told)}</table>' if told else ""


def _slowest(report: Summary) -> str:
    told = "".join(map(_slow, report.slowest))
    missing = f'<p class="sub">timelines are missing: {escape(report.missing)}</p>' if report.missing else ""
    return told + missing


def _slow(one: SlowSandbox) -> str:
    parts = "".join(
        f'<tr><td>{escape(words.of(f"create.{name}"))}</td><td class="n">{words.duration(part_ms)}</td></tr>'
        for name, part_ms in one.parts_ms.items()
    )
    moments = one.timeline.moments if one.timeline is not None else ()
    story = "".join(
        f'<tr><td>{escape(at.text)}</td><td class="n">+{at.after_ms / 1000:.3f} s</td></tr>' for at in moments
    )
    head = f"<b>{words.duration(one.took_ms)}</b> <code>{escape(one.sandbox_id or 'no id')}</code> {escape(one.source)}"
    image = f'<p class="sub">{escape(one.image)}</p>'
    return f"<details><summary>{head} — {escape(one.why)}</summary>{image}<table>{parts}{story}</table></details>"
