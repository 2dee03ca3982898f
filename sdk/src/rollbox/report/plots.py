"""Plots of a report as SVG elements. Pure: numbers in, markup out, in which all text is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from rollbox.recording.tails import Tail
from rollbox.report import words

WIDE, HIGH = 760, 240
_LEFT, _BELOW = 48, 34
_LEAST_MS = 0.001
# Of a histogram; at least ten to each power of ten.
_CLASSES = 40
# Told apart by people who do not see red and green as two colours (Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c00", "#5e3c99")
# From below.
_STACKED = ("exec", "running", "idle", "create")
_OF_STATE = {"create": "#e69f00", "exec": "#0072b2", "running": "#0072b2", "idle": "#9ecae1", "none": "#d9d9d9"}


def colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each part of a wall time: that of its state, from dark to light where it has several."""
    there = [*names]
    found = {}
    for name in there:
        state, _, part = name.partition(".")
        siblings = [one for one in there if one.startswith(f"{state}.")]
        base = _OF_STATE.get(state, _COLOURS[-1])
        found[name] = _shaded(base, (siblings.index(name) + 1) / (len(siblings) + 1)) if part else base
    return found


def bar(spent_s: Mapping[str, float]) -> str:
    """Draw the parts of a wall time as one bar."""
    whole_s, at, parts, fills = sum(spent_s.values()) or 1.0, 0.0, [], colours(spent_s)
    for name, part_s in spent_s.items():
        wide = WIDE * part_s / whole_s
        title = f"<title>{escape(words.of(name))}: {part_s / whole_s:.1%}</title>"
        parts.append(f'<rect x="{at:.1f}" y="0" width="{wide:.2f}" height="34" fill="{fills[name]}">{title}</rect>')
        at += wide
    return _svg(parts, 34, "parts of the wall time")


def over_time(bins: Sequence[Mapping[str, float]], wall_s: float) -> str:
    """Draw how many sandboxes did what over the time."""
    stacks = [_by_state(one) for one in bins]
    most = max((sum(one.get(state, 0.0) for state in _STACKED) for one in stacks), default=0.0) or 1.0
    wall_s, plot_wide = wall_s or 1.0, WIDE - _LEFT
    parts = _axes([(share, f"{most * share:.3g}") for share in (0.0, 0.5, 1.0)])
    parts += [
        _text(_LEFT + plot_wide * share, HIGH - 12, words.duration(1000 * wall_s * share), "end" if share else "start")
        for share in (0.0, 0.5, 1.0)
    ]
    for place, one in enumerate(bins):
        left = _LEFT + plot_wide * one["at_s"] / wall_s
        ends_s = bins[place + 1]["at_s"] if place + 1 < len(bins) else wall_s
        wide, top = max(0.5, plot_wide * (ends_s - one["at_s"]) / wall_s), float(HIGH - _BELOW)
        for state in _STACKED:
            high = (HIGH - _BELOW - 8) * stacks[place].get(state, 0.0) / most
            top -= high
            box = f'x="{left:.1f}" y="{top:.1f}" width="{wide:.2f}" height="{high:.2f}"'
            parts.append(f'<rect {box} fill="{_OF_STATE[state]}"/>' if high else "")
    there = [state for state in reversed(_STACKED) if any(one.get(state) for one in stacks)]
    return _svg(parts, HIGH, "sandboxes over the time") + _legend((words.of(one), _OF_STATE[one]) for one in there)


def _by_state(parts: Mapping[str, float]) -> dict[str, float]:
    """Add up the parts of each state: "create.queue" and "create.boot" are both "create"."""
    found: dict[str, float] = {}
    for name, number in parts.items():
        state = name.partition(".")[0]
        found[state] = found.get(state, 0.0) + number
    return found


def distributions(tails: Mapping[str, Tail]) -> str:
    """Draw distributions: the share of durations up to each, on a logarithmic axis."""
    shown = {name: tail for name, tail in tails.items() if tail.steps}
    if not shown:
        return ""
    axis = _Times.of(shown.values())
    plot_high = HIGH - _BELOW - 8

    def place(took_ms: float, share: float) -> str:
        return f"{axis.across(took_ms):.1f},{8 + plot_high * (1 - share):.1f}"

    parts = [*_axes([(share, f"{share:.0%}") for share in (0.0, 0.5, 0.9, 1.0)]), *axis.parts()]
    for (_, tail), stroke in zip(shown.items(), _COLOURS * len(shown), strict=False):
        before, points = 0.0, []
        for took_ms, share in tail.steps:
            points += [place(took_ms, before), place(took_ms, share)]
            before = share
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{stroke}" stroke-width="1.8"/>')
    return _svg(parts, HIGH, "distributions of durations") + _legend(zip(shown, _COLOURS * len(shown), strict=False))


def histogram(tails: Mapping[str, Tail]) -> str:
    """Draw which share of durations was about as long, in classes; the colours are those of `distributions`."""
    shown = {name: tail for name, tail in tails.items() if tail.steps}
    if not shown:
        return ""
    axis = _Times.of(shown.values())
    shares = {name: axis.classes(tail) for name, tail in shown.items()}
    most = max(max(one.values()) for one in shares.values())
    plot_high, parts = HIGH - _BELOW - 8, [*_axes([(at, f"{most * at:.3g}%") for at in (0.0, 0.5, 1.0)]), *axis.parts()]
    for name, fill in zip(shares, _COLOURS * len(shown), strict=False):
        for one, share in shares[name].items():
            left, right = (axis.across(10 ** ((one + end) / axis.to_ten)) for end in (0, 1))
            high = plot_high * share / most
            box = f'x="{left:.1f}" y="{8 + plot_high - high:.1f}" width="{max(0.5, right - left - 0.6):.2f}"'
            # Where two of them overlap, both are seen.
            parts.append(f'<rect {box} height="{high:.2f}" fill="{fill}" fill-opacity=".75"/>')
    return _svg(parts, HIGH, "histogram of durations")


class _Times(NamedTuple):
    """A logarithmic axis of durations, between two powers of ten, of ms."""

    least: int
    most: int

    @classmethod
    def of(cls, tails: Iterable[Tail]) -> _Times:
        shown = [*tails]
        least = math.floor(math.log10(min(tail.steps[0][0] for tail in shown) or _LEAST_MS))
        return cls(least, max(least + 1, math.ceil(math.log10(max(tail.max_ms for tail in shown) or 1))))

    def across(self, took_ms: float) -> float:
        share = (math.log10(max(took_ms, 10.0**self.least)) - self.least) / (self.most - self.least)
        return _LEFT + (WIDE - _LEFT - 8) * share

    @property
    def to_ten(self) -> int:
        """How many classes of a histogram there are to each power of ten."""
        return max(10, _CLASSES // (self.most - self.least))

    def classes(self, tail: Tail) -> dict[int, float]:
        """Return the share of durations, per cent, by class: the power of ten that it begins with, times `to_ten`."""
        found: dict[int, float] = {}
        before = 0.0
        for took_ms, share in tail.steps:
            one = math.floor(self.to_ten * math.log10(max(took_ms, _LEAST_MS)))
            found[one] = found.get(one, 0.0) + 100 * (share - before)
            before = share
        return found

    def parts(self) -> Iterator[str]:
        between = (1, 2, 5) if self.most - self.least <= 2 else (1,)
        ticks = [factor * 10.0**power for power in range(self.least, self.most) for factor in between]
        for took_ms in [*ticks, 10.0**self.most]:
            across = self.across(took_ms)
            yield f'<line x1="{across:.1f}" y1="8" x2="{across:.1f}" y2="{HIGH - _BELOW}" class="grid"/>'
            anchor = "end" if took_ms == 10.0**self.most else "middle"
            yield _text(across, HIGH - 12, words.duration(took_ms), anchor)


def _axes(levels: Iterable[tuple[float, str]]) -> list[str]:
    parts = []
    for share, told in levels:
        down = 8 + (HIGH - _BELOW - 8) * (1 - share)
        parts.append(f'<line x1="{_LEFT}" y1="{down:.1f}" x2="{WIDE - 8}" y2="{down:.1f}" class="grid"/>')
        parts.append(_text(_LEFT - 6, down + 4, told, "end"))
    return parts


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    keys = (f'<span><i style="background:{stroke}"></i>{escape(name)}</span>' for name, stroke in entries)
    return f'<p class="legend">{"".join(keys)}</p>'


def _text(across: float, down: float, told: str, anchor: str) -> str:
    return f'<text x="{across:.1f}" y="{down:.1f}" text-anchor="{anchor}">{escape(told)}</text>'


def _svg(parts: Iterable[str], high: int, label: str) -> str:
    head = f'<svg viewBox="0 0 {WIDE} {high}" role="img" aria-label="{escape(label)}">'
    return f'<div class="scroll">{head}{"".join(parts)}</svg></div>'


def _shaded(base: str, share: float) -> str:
    """Make a colour darker (shares up to a half) or lighter."""
    channels = (int(base[at : at + 2], 16) for at in (1, 3, 5))
    made = (one * (0.3 + 1.4 * share) if share <= 0.5 else one + (255 - one) * (1.5 * share - 0.75) for one in channels)
    return "#" + "".join(f"{round(one):02x}" for one in made)
