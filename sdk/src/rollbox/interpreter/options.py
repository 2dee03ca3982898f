"""The options of interpreters and their cells, for code that passes them on."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from rollbox.request import Directory, Variables

DEFAULT_OUTPUT_BYTES = 2**20
OnDisconnect: TypeAlias = Literal["interrupt", "continue"]
"""What becomes of a cell whose caller is gone."""


class InterpreterOptions(TypedDict, total=False):
    """The options of `Sandbox.interpreter` but its language; described there."""

    kernel: Literal["jupyter"] | None
    cwd: Directory | None
    env: Variables | None
    user: str | None
    max_output_bytes: int


class CellOptions(TypedDict, total=False):
    """The options of `Interpreter.run` and `Interpreter.stream`; described there."""

    timeout: float | None
    on_disconnect: OnDisconnect
    max_output_bytes: int | None
    cell_id: str | None
