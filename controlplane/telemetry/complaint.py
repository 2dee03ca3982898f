"""What a program that ends on a failure says to whoever started it."""

import sys

from controlplane.errors import Problem


def complain(program: str, error: BaseException) -> None:
    """One line on stderr for each failure; a group's members each get theirs, and a problem only its detail."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            complain(program, one)
    else:
        sys.stderr.write(f"{program}: {error.detail if isinstance(error, Problem) else error}\n")
