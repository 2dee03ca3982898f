"""Tells its kernel's name and platform, and then takes memory until it is ended for it; the standard library alone.

``python3 -m controlplane.reach.greedy MEBIBYTES FILE`` writes ``{"kernel": ..., "platform": ...}`` to the file, and
``took_mebibytes`` with it if it could take all that.
"""

import json
import os
import sys
from pathlib import Path
from typing import Final

from controlplane.reach import platform

MEBIBYTE: Final = 1 << 20


def main(arguments: list[str]) -> int:
    """Returns the exit status; where limits hold, it does not return."""
    mebibytes, file = int(arguments[0]), Path(arguments[1])
    told: dict[str, object] = {"kernel": Path("/proc/version").read_text().strip(), "platform": platform.seen()}
    _written(file, told)
    held = [os.urandom(MEBIBYTE) for _ in range(mebibytes)]
    _written(file, {**told, "took_mebibytes": len(held)})
    return 0


def _written(file: Path, told: dict[str, object]) -> None:
    with file.open("w") as out:
        out.write(json.dumps(told))
        out.flush()
        # It may be ended at any moment from now on.
        os.fsync(out.fileno())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
