"""Pictures that are made while the site is built: screens of the command line, and the plot of the README's figures."""

from __future__ import annotations

import math
import re
from html import escape
from typing import Final

from docs.site.sources import ROOT

SCREENS: Final = ROOT / "tests/unit/sdk/screens"
_ROW: Final = re.compile(
    r"^\| (?P<name>[^|]+) \| (?P<seen>[^|]+?), ratio (?P<ratio>[\d.]+) \| (?P<target>[^|]+) \|$", re.M
)
_AIM: Final = re.compile(r"ratio >= ([\d.]+)")
BAR: Final = 22
STEP: Final = 58
WIDTH: Final = 640


def screen(name: str) -> str:
    """A screen of the command line, as a test keeps it."""
    text = (SCREENS / f"{name}.txt").read_text().rstrip()
    return f'<div class="terminal"><pre>{escape(text)}</pre></div>'


def headlines() -> str:
    """A bar for each figure of the README: how many times better than what it is compared to; a mark for its aim."""
    rows = list(_ROW.finditer((ROOT / "README.md").read_text()))
    most = max(float(row["ratio"]) for row in rows)
    parts = []
    for number, row in enumerate(rows):
        top, ratio = number * STEP, float(row["ratio"])
        aim = _AIM.search(row["target"])
        mark = _x(float(aim[1]), most) if aim else 0
        end = _x(ratio, most)
        parts.append(f'<text x="0" y="{top + 14}">{escape(row["name"].replace("`", ""))}</text>')
        parts.append(f'<rect class="bar" x="0" y="{top + 20}" width="{end:.0f}" height="{BAR}" rx="2"/>')
        parts.append(f'<text x="{max(end, mark) + 8:.0f}" y="{top + 36}">{ratio:g} times</text>')
        if aim:
            parts.append(f'<path class="aim" d="M{mark:.0f} {top + 17}v{BAR + 6}"/>')
    height = len(rows) * STEP
    return (
        f'<div class="plot"><svg role="img" aria-label="How many times better than what each is compared to" '
        f'viewBox="0 0 {WIDTH + 110} {height}" width="{WIDTH + 110}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg></div>'
    )


def _x(ratio: float, most: float) -> float:
    """Where a ratio is, on a logarithmic axis that begins at 1."""
    return WIDTH * math.log(max(ratio, 1.01)) / math.log(most)
