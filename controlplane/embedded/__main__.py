"""``python -m controlplane.embedded``: the same as ``rollbox up``."""

import sys
from collections.abc import Sequence

import uvloop

from controlplane.embedded.options import parse
from controlplane.embedded.trouble import TroubleError
from controlplane.embedded.up import up
from controlplane.errors import Problem
from controlplane.settings import EXIT_CONFIG, SettingError
from controlplane.telemetry import configure_log


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until it is stopped; the exit status: 0, 64 for bad settings, 1 when it cannot run here."""
    options = parse(arguments)
    configure_log()
    status = 0
    try:
        uvloop.run(up(options))
    # What runs in task groups fails in groups.
    except* (TroubleError, Problem) as group:
        _complain(group)
        status = 1
    except* SettingError as group:
        _complain(group)
        status = EXIT_CONFIG
    return status


def _complain(error: BaseException) -> None:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            _complain(one)
    else:
        sys.stderr.write(f"rollbox up: {error.detail if isinstance(error, Problem) else error}\n")


if __name__ == "__main__":
    raise SystemExit(main())
