"""The command line: see the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.levels import table
from tests.levels.again import second_look
from tests.levels.outcome import table as told
from tests.levels.run import Run

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rollbox"


def main(names: list[str]) -> int:
    """Run the named levels; the exit status is 1 when any is not good, 2 when there is none of that name."""
    try:
        levels = table.chosen(names)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    run = Run(levels, strict=os.environ.get("CI") == "true", fresh=_fresh())
    try:
        run.levels()
        if "gate" in names:
            second_look(run.outcomes)
    finally:
        run.take_down()
        print("\n== levels", *told(run.outcomes), sep="\n", flush=True)
    return 1 if any(outcome.trouble for outcome in run.outcomes) else 0


def _fresh() -> bool:
    """Whether this machine has compiled nothing yet; a half-filled cache counts as an empty one."""
    return not (list(CACHE.glob("cargo/*/static")) and list(CACHE.glob("cluster/helm-*")))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
