"""Keeps the logs of a folder bounded: `python janitor.py FOLDER`. Writers append, so a log can be cut in place."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

LIMIT = 32 << 20
EVERY_S = 5.0


def bound(log: Path, limit: int = LIMIT) -> None:
    """Above the limit the log moves on to `<name>.1`, in place of the one before."""
    if log.stat().st_size > limit:
        shutil.copyfile(log, log.with_suffix(".log.1"))
        with log.open("r+b") as file:
            file.truncate(0)


def main(folder: Path) -> None:
    """Until killed."""
    while True:
        for log in folder.glob("*.log"):
            bound(log)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
