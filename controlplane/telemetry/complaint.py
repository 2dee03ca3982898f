"""Error output of a program that exits with a failure."""

import sys
from contextlib import suppress

from controlplane.errors import Problem


def complain(program: str, error: BaseException) -> None:
    """Writes one line to stderr for each failure, also of an exception group; of a problem only its detail."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            complain(program, one)
    else:
        # The exit status says the rest where stderr is full.
        with suppress(OSError):
            sys.stderr.write(f"{program}: {error.detail if isinstance(error, Problem) else error}\n")
            sys.stderr.flush()
