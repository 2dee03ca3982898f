"""Programs of distributions beside the SDK, which commands become."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias

from rollbox.cli import output
from rollbox.errors import Unsupported

Value: TypeAlias = str | int | float | bool | Sequence[str] | None


def become(command: str, package: str, module: str, given: Mapping[str, Value], *, install: str) -> NoReturn:
    """Become a program of another distribution, as `rollbox up` becomes its own.

    Args:
        command: what was typed, for the words of a refusal.
        package: that has the program.
        module: of the package, which is run.
        given: its options; None and False are left out, and of several values each has the option before it.
        install: how to get the package, where it is not there.
    """
    if importlib.util.find_spec(package) is None:
        detail = f"`rollbox {command}` needs the Python package {package}, which is not installed beside this one"
        output.fail(Unsupported(detail, hint=install), as_json=bool(given.get("--json")))
    words = [word for name, value in given.items() for word in _words(name, value)]
    os.execv(sys.executable, [sys.executable, "-m", f"{package}.{module}", *words])  # noqa: S606


def _words(name: str, value: Value) -> list[str]:
    """An option as words of a command line; none where it is not given."""
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    if isinstance(value, str | int | float):
        return [name, str(value)]
    return [word for one in value for word in (name, one)]
