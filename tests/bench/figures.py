"""The page of all figures, and the few of the README, from the records of `make bench` and its like.

python -m tests.bench.figures    # writes docs/figures.md, the README's table and those of docs/guide/gvisor.md
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.declared import Declared, all_declared, declared
from tests.bench.gvisor.page import filled
from tests.bench.record import BUILD

ROOT = Path(__file__).parent.parent.parent
PAGE, README = ROOT / "docs" / "figures.md", ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide" / "gvisor.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
VERBS = {
    "cluster_": "make bench-cluster",
    "lifecycle_": "make bench-lifecycle",
    "gvisor_": "make bench-gvisor",
    "": "make bench",
}
INTRODUCTION = """# Figures

`make figures` writes this page from what `make bench`, `make bench-lifecycle`, `make bench-cluster` and `make
bench-gvisor` have measured (`build/bench`); a scenario that was not measured again keeps its section. A value is the
median of the runs; its range is that of the runs and of the rounds within them, where there are several. How one run
comes to it is declared in `tests/bench/figures.toml` before it is measured, and so is its target. Each baseline is of
the same run; a ratio says how many times better than it.

- `make bench`: an engine on the machine that measures; client, gateway, control plane and sandboxes are on it.
- `make bench-cluster`: the chart on one node of a real Kubernetes with gVisor, everything on that node: API server,
  control plane, gateways, sandboxes and the client that measures. With `make cluster`, the network is Cilium and the
  kubelet's CFS period is 10 ms.
- `make bench-gvisor`: the same image under runc and in gVisor, in turn, on the same machine.
- `make bench-lifecycle`: gateway, control plane, Redis and SDK are real; the cluster and its sidecars are played, so
  that what is measured is what the platform adds.
"""
Run = Mapping[str, Any]


def page(scenarios: Mapping[str, Sequence[Run]], before: str = "") -> str:
    """The whole page, of all runs of each scenario, oldest first.

    Args:
        scenarios: the runs.
        before: the page so far, whose sections stay where there is no run.
    """
    kept = _sections(before)
    made = {name: _section(name, runs) for name, runs in scenarios.items() if runs}
    return INTRODUCTION + "".join(made.get(name) or kept.get(name, "") for name in all_declared())


def _sections(text: str) -> dict[str, str]:
    """Those of a page, by scenario."""
    return {part.partition("\n")[0]: f"\n## {part}" for part in text.split("\n## ")[1:]}


def headlines(scenarios: Mapping[str, Sequence[Run]], before: str = "") -> str:
    """The README's table: the figures that are declared with a `headline`.

    Args:
        scenarios: the runs.
        before: the README so far, whose rows stay where there is no run.
    """
    kept = {line.split(" | ")[0].removeprefix("| "): line for line in before.splitlines() if line.startswith("| ")}
    rows = ["| figure | seen | target |", "|---|---|---|"]
    for scenario, patterns in all_declared().items():
        if not scenarios.get(scenario):
            rows += [kept[what.headline] for what in patterns.values() if what.headline in kept]
        for figure in _of_newest(scenarios.get(scenario, ())):
            what = declared(scenario, figure)
            if what in patterns.values() and what.headline:
                runs = scenarios[scenario]
                target = headline_target(what, _met(runs, figure))
                rows.append(f"| {what.headline} | {_seen(runs, figure)} | {target} |")
    return "\n".join(rows) + "\n"


def _section(scenario: str, runs: Sequence[Run]) -> str:
    newest = runs[-1]
    machine, versions = newest["hardware"], newest["versions"]
    verb = next(verb for prefix, verb in VERBS.items() if scenario.startswith(prefix))
    where = f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_mib']} MiB, Linux {machine['kernel']}"
    lines = [
        f"\n## {scenario}\n",
        f"`{verb}`; {_span(runs)}; {where}; {', '.join(f'{name} {one}' for name, one in versions.items())}.\n",
        "| figure | statistic | value | against | target | met |",
        "|---|---|---|---|---|---|",
    ]
    figures = _of_newest(runs)
    for figure, one in figures.items():
        what = declared(scenario, figure)
        against = f"{one['baseline']['what']}: {_baseline(runs, figure)}" if one["baseline"] else ""
        cells = (figure, what.statistic, _value(runs, figure), against, target_text(what), _met(runs, figure))
        lines.append(f"| {' | '.join(cells)} |")
    conditions = dict.fromkeys(one["conditions"] for one in figures.values())
    return "\n".join([*lines, "", *(f"- {one}" for one in conditions)]) + "\n"


def _of_newest(runs: Sequence[Run]) -> dict[str, Any]:
    return {one["figure"]: one for one in runs[-1]["figures"]} if runs else {}


def _all(runs: Sequence[Run], figure: str) -> list[Any]:
    """The figure in all runs that have it, on the machine of the newest."""
    same = [run for run in runs if run["hardware"] == runs[-1]["hardware"]]
    return [one for run in same for one in run["figures"] if one["figure"] == figure]


def _span(runs: Sequence[Run]) -> str:
    same = [run for run in runs if run["hardware"] == runs[-1]["hardware"]]
    times = list(dict.fromkeys((same[0]["measured"][:10], same[-1]["measured"][:10])))
    commits = list(dict.fromkeys((same[0]["commit"], same[-1]["commit"])))
    count = f"{len(same)} run{'s' if len(same) > 1 else ''}"
    return f"{count}, {' to '.join(times)}, commit {' to '.join(commits)}"


def _value(runs: Sequence[Run], figure: str) -> str:
    found = _all(runs, figure)
    return f"{_middle(found)} {found[-1]['unit']}".strip()


def _baseline(runs: Sequence[Run], figure: str) -> str:
    found = [one for one in _all(runs, figure) if one["baseline"]]
    value = f"{_middle([one['baseline'] for one in found])} {found[-1]['unit']}".strip()
    ratios = [{"value": one["ratio"]} for one in found if one["ratio"] is not None]
    return f"{value}, ratio {_middle(ratios)}" if ratios else value


def _seen(runs: Sequence[Run], figure: str) -> str:
    one = _of_newest(runs)[figure]
    against = f"; {one['baseline']['what']}: {_baseline(runs, figure)}" if one["baseline"] else ""
    return f"{_value(runs, figure)}{against}"


def target_text(what: Declared) -> str:
    """As the tables have it."""
    return what.target or "told only"


def headline_target(what: Declared, met: str) -> str:
    """The same for the README, which has no column for what the page says under `met`."""
    return f"{target_text(what)} (missed)" if "**" in met else target_text(what)


def _met(runs: Sequence[Run], figure: str) -> str:
    judged = [one["met"] for one in _all(runs, figure) if one["met"] is not None]
    if not judged:
        return ""
    if len(set(judged)) == 1:
        return "yes" if judged[0] else "**no**"
    return f"**in {sum(judged)} of {len(judged)}**"


def _middle(found: Sequence[Mapping[str, Any]]) -> str:
    values = [one["value"] for one in found]
    rounds = [one["distribution"] for one in found if "min" in one.get("distribution", ())]
    seen = [*values, *(one[end] for one in rounds for end in ("min", "max"))]
    middle = _short(statistics.median(values))
    return middle if len(seen) == 1 else f"{middle} ({_short(min(seen))} to {_short(max(seen))})"


def _short(value: float) -> str:
    """Three digits that count, without an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _records() -> dict[str, list[Run]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(BUILD.glob("*.json"))}


def in_readme(text: str, table: str) -> str:
    """The README's text with this table between its two marks.

    Raises:
        ValueError: it has no such marks.
    """
    if not 0 <= text.find(BEGIN) < text.find(END):
        raise ValueError(f"there is no place for the figures: {BEGIN} and {END}, in this order")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}{END}{after}"


def main() -> int:
    """Write the page and the README's table."""
    scenarios = _records()
    if not scenarios:
        print("there are no records: run `make bench`, `make bench-lifecycle` or `make bench-cluster`", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(scenarios, PAGE.read_text() if PAGE.is_file() else ""))
    readme = README.read_text()
    README.write_text(in_readme(readme, headlines(scenarios, readme)))
    GUIDE.write_text(filled(GUIDE.read_text(), scenarios))
    print(f"{PAGE.relative_to(ROOT)} and the table of {README.name} say what {len(scenarios)} scenarios have measured")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
