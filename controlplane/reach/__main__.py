"""``python3 -m controlplane.reach WAYS [FILE]``: tries the ways and writes what came of it, and the kernel's name.

``python3 -m controlplane.reach serve HOST PORT...``: what a way may lead to; takes connections until it is ended.
"""

import json
import sys
import threading
from pathlib import Path

from controlplane.reach import attempts, ways
from controlplane.reach.listening import listening


def main(arguments: list[str]) -> int:
    """The exit status: 0 when all was tried, whatever came of it."""
    if arguments[0] == "serve":
        with listening([int(port) for port in arguments[2:]], arguments[1]):
            threading.Event().wait()
    seen = attempts.look(ways.loaded(arguments[0]))
    kernel = Path("/proc/version").read_text().strip()
    text = json.dumps({"kernel": kernel, "seen": attempts.plain(seen)})
    # Not by way of /dev/stdout: the pipe may be another user's, and only that user may open it.
    if arguments[1:]:
        Path(arguments[1]).write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
