"""``python -m controlplane.embedded``: the same as ``rollbox up``."""

import os
import sys
from collections.abc import Sequence

import uvloop

from controlplane.embedded.options import parse
from controlplane.embedded.up import up
from controlplane.embedded.up_error import UpError
from controlplane.errors import Problem
from controlplane.settings import EXIT_CONFIG, SettingError
from controlplane.telemetry import complain, configure_log


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until it is stopped; returns the exit status: 0, 64 for bad settings, 1 if it cannot run on this machine."""
    _standard_streams()
    options = parse(arguments)
    configure_log()
    status = 0
    try:
        uvloop.run(up(options))
    # Errors from task groups arrive as exception groups.
    except* (UpError, Problem) as group:
        complain("rollbox up", group)
        status = 1
    except* SettingError as group:
        complain("rollbox up", group)
        status = EXIT_CONFIG
    return status


def _standard_streams() -> None:
    """Lets what the process was started without lead nowhere: else a socket would get its number, and all its text."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, mode))


if __name__ == "__main__":
    raise SystemExit(main())
