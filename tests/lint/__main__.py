"""Prints what the rules of this package find.

python -m tests.lint [PATHS]    all of the tests and of the packages when there is no path
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.lint import docstrings, speed
from tests.lint.problem import Problem

ROOT: Final = Path(__file__).parent.parent.parent


def main(arguments: list[str]) -> int:
    """Print every problem; the exit status is 1 when there is any.

    Args:
        arguments: files and folders of tests; none: all tests, and the docstrings of the packages.
    """
    paths = [Path(one).resolve() for one in arguments] or [ROOT / "tests"]
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    names = [(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file).as_posix() for file in files]
    found = [one for file, name in zip(files, names, strict=True) for one in speed.problems(file.read_text(), name)]
    found += [] if arguments else docstrings.problems(docstrings.sources(ROOT))
    _print(found)
    return 1 if found else 0


def _print(found: list[Problem]) -> None:
    for one in found:
        print(f"{one.path}:{one.line}: {one.words}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
