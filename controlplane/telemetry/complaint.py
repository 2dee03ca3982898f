"""Error output of a program that exits with a failure."""

import sys

from controlplane.errors import Problem


def complain(program: str, error: BaseException) -> None:
    """Writes one line to stderr for each failure, also of an exception group; of a problem only its detail."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            complain(program, one)
    else:
        sys.stderr.write(f"{program}: {error.detail if isinstance(error, Problem) else error}\n")
