"""Python: coverage.py around the tests of `make test` but the chart's, in their child processes too."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

from tests.coverage.figures import OUT, ROOT, Counts, Figures
from tests.support.stack import why_no_engine

# Name -> folders of tests. What runs on the cluster is in images, which do not count.
RUNS = {"unit": ("unit",), "contract": ("contract",), "engine": ("local", "product")}
DATA = OUT / "python"
SETTINGS = DATA / "settings.ini"
# `rollbox up` becomes the control plane by exec. What a child process writes to stderr is compared by tests, so
# coverage.py has nothing to say there.
RULES = f"""[run]
branch = true
parallel = true
data_file = {DATA}/data
source =
    {ROOT}/controlplane
    {ROOT}/sdk/src/rollbox
omit = {ROOT}/controlplane/wire/*_pb2*.py
patch = subprocess, execv
disable_warnings = no-data-collected, module-not-imported, module-not-measured
"""


def measure() -> Figures:
    """Run the tests and count."""
    figures = Figures("python")
    figures.notes.append("not counted: child processes that are killed, generated code (controlplane/wire/*_pb2)")
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    SETTINGS.write_text(RULES)
    for name, folders in RUNS.items():
        if name == "engine" and (reason := why_no_engine()):
            figures.lacks(f"{name}: left out: {reason}")
            continue
        # Counting slows down every line, and the start of every child process more.
        pytest = ("pytest", "-q", "--timeout=1800", "-m", "not soak", *(f"tests/{folder}" for folder in folders))
        status = _coverage("run", "-m", *pytest)
        figures.notes.append(f"{name}: passed") if status == 0 else figures.lacks(f"{name}: exit {status} of pytest")
    report = OUT / "python-lines.json"
    if _coverage("combine", "--quiet") or _coverage("json", "--quiet", "-o", str(report)):
        return figures.lacks("coverage.py has no data")
    for path, file in json.loads(report.read_text())["files"].items():
        told = file["summary"]
        names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
        figures.files[path] = Counts(*(told[name] for name in names))
    return figures


def _coverage(verb: str, *arguments: str) -> int:
    command = (sys.executable, "-m", "coverage", verb, f"--rcfile={SETTINGS}", *arguments)
    return subprocess.run(command, cwd=ROOT, check=False).returncode
