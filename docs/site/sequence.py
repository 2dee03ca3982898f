"""Sequence diagrams of pages as SVG, made while the site is built: a page needs no script and no server for them.

Pages have them as Mermaid (`sequenceDiagram`), which code hosts draw too. What is understood:
`participant NAME as LABEL`, `A->>B: TEXT`, `A-->>B: TEXT` (an answer), `Note over A,B: TEXT`; `<br/>` breaks a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from typing import Final

CHARACTER: Final = 6.4
LINE: Final = 17
HEAD: Final = 40
MARGIN: Final = 12
_PARTICIPANT: Final = re.compile(r"participant (\w+)(?: as (.+))?")
_MESSAGE: Final = re.compile(r"(\w+)(-?->>)(\w+): ?(.+)")
_NOTE: Final = re.compile(r"Note over (\w+)(?:, ?(\w+))?: ?(.+)")


@dataclass(frozen=True)
class Step:
    """A message or a note: from one participant to another (the same one: to itself, or over it alone)."""

    first: int
    last: int
    lines: list[str]
    kind: str  # call, answer, note


@dataclass
class Diagram:
    """Who takes part, by label, and what passes between them, in order."""

    labels: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def parse(source: str) -> Diagram:
    """Read a diagram.

    Raises:
        ValueError: a line is none of those that are understood.
    """
    diagram, names = Diagram(), list[str]()
    for line in [line.strip() for line in source.strip().splitlines()][1:]:
        if found := _PARTICIPANT.fullmatch(line):
            names.append(found[1])
            diagram.labels.append(found[2] or found[1])
        elif found := _MESSAGE.fullmatch(line):
            kind = "answer" if found[2].startswith("--") else "call"
            step = Step(names.index(found[1]), names.index(found[3]), _lines(found[4]), kind)
            diagram.steps.append(step)
        elif found := _NOTE.fullmatch(line):
            step = Step(names.index(found[1]), names.index(found[2] or found[1]), _lines(found[3]), "note")
            diagram.steps.append(step)
        elif line:
            raise ValueError(f"a sequence diagram has no such line: {line}")
    return diagram


def svg(source: str) -> str:
    """Draw a diagram, as one element without a blank line.

    Raises:
        ValueError: as `parse`.
    """
    diagram = parse(source)
    places = _places(diagram)
    parts, below = list[str](), MARGIN + HEAD + MARGIN
    for step in diagram.steps:
        parts.append(_drawn(step, places, below))
        below += _height(step)
    right = max([places[-1] + _width([diagram.labels[-1]]) / 2, *(_reach(step, places) for step in diagram.steps)])
    width, height = int(right) + MARGIN, below + MARGIN
    lifelines = "".join(f'<path class="life" d="M{x:.0f} {MARGIN + HEAD}V{height - MARGIN}"/>' for x in places)
    heads = "".join(_box(label, x) for label, x in zip(diagram.labels, places, strict=True))
    says = escape("; ".join(" ".join(step.lines) for step in diagram.steps))
    return (
        f'<div class="sequence"><svg role="img" aria-label="{says}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" xmlns="http://www.w3.org/2000/svg">{lifelines}{heads}{"".join(parts)}</svg></div>'
    )


def _lines(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"<br ?/?>", text)]


def _width(lines: list[str]) -> float:
    return max(len(line) for line in lines) * CHARACTER + 2 * MARGIN


def _places(diagram: Diagram) -> list[float]:
    """Where the lifelines are: as far apart as labels and what is written between them need."""
    places = [MARGIN + _width([diagram.labels[0]]) / 2]
    for at in range(1, len(diagram.labels)):
        gap = (_width([diagram.labels[at - 1]]) + _width([diagram.labels[at]])) / 2 + MARGIN
        place = places[-1] + gap
        for step in diagram.steps:
            low, high = sorted((step.first, step.last))
            if high == at and low < at:
                place = max(place, places[low] + _width(step.lines))
            elif low == high == at - 1 and step.kind != "note":
                place = max(place, places[low] + _width(step.lines) + 2 * MARGIN)
            elif low == high == at and step.kind == "note":
                place = max(place, _width(step.lines) / 2 + MARGIN)
        places.append(place)
    return places


def _reach(step: Step, places: list[float]) -> float:
    x = places[max(step.first, step.last)]
    if step.first != step.last:
        return x + MARGIN
    return x + (_width(step.lines) / 2 if step.kind == "note" else _width(step.lines) + 2 * MARGIN)


def _height(step: Step) -> int:
    return len(step.lines) * LINE + {"note": 22, "call": 16, "answer": 16}[step.kind]


def _text(lines: list[str], x: float, y: float, anchor: str = "middle") -> str:
    spans = "".join(
        f'<tspan x="{x:.0f}" y="{y + at * LINE:.0f}">{escape(line)}</tspan>' for at, line in enumerate(lines)
    )
    return f'<text text-anchor="{anchor}">{spans}</text>'


def _box(label: str, x: float) -> str:
    width = _width([label])
    frame = f'<rect class="head" x="{x - width / 2:.0f}" y="{MARGIN}" width="{width:.0f}" height="{HEAD}" rx="4"/>'
    return frame + _text([label], x, MARGIN + HEAD / 2 + 5)


def _drawn(step: Step, places: list[float], y: float) -> str:
    first, last = places[step.first], places[step.last]
    if step.kind == "note":
        middle = (first + last) / 2
        width = max(_width(step.lines), abs(last - first) + 4 * MARGIN if first != last else 0)
        height = len(step.lines) * LINE + 8
        left = max(2.0, middle - width / 2)
        frame = f'<rect class="note" x="{left:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" rx="4"/>'
        return frame + _text(step.lines, left + width / 2, y + LINE)
    below = y + len(step.lines) * LINE + 3
    if first == last:
        loop = f"M{first:.0f} {below - 14:.0f}h{2 * MARGIN}v12h-{2 * MARGIN - 6}"
        head = f"M{first + 1:.0f} {below - 2:.0f}l7 -4v8z"
        text = _text(step.lines, first + 3 * MARGIN, below - 8 - (len(step.lines) - 1) * LINE, "start")
        return f'<path class="{step.kind}" d="{loop}"/><path class="tip" d="{head}"/>{text}'
    way = 1 if last > first else -1
    line = f'<path class="{step.kind}" d="M{first:.0f} {below:.0f}H{last - 7 * way:.0f}"/>'
    tip = f'<path class="tip" d="M{last:.0f} {below:.0f}l{-8 * way} -4v8z"/>'
    return line + tip + _text(step.lines, (first + last) / 2, y + LINE - 5)
