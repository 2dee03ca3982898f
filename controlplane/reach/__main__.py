"""Runs the network check in a pod.

``python3 -m controlplane.reach WAYS [FILE]`` tries the destinations, and writes the results and the kernel's name.
``python3 -m controlplane.reach serve HOST PORT...`` listens as a destination until it is killed.
"""

import json
import sys
import threading
from pathlib import Path

from controlplane.reach import attempts, ways
from controlplane.reach.listening import listening


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 when all destinations were tried, whatever the results."""
    if arguments[0] == "serve":
        with listening([int(port) for port in arguments[2:]], arguments[1]):
            threading.Event().wait()
    seen = attempts.try_all(ways.loaded(arguments[0]))
    kernel = Path("/proc/version").read_text().strip()
    text = json.dumps({"kernel": kernel, "seen": attempts.plain(seen)})
    # Not by opening /dev/stdout: the pipe may belong to another user, and only that user may open it.
    if arguments[1:]:
        Path(arguments[1]).write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
