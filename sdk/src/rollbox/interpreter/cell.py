"""What a cell answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from rollbox.result import ExecResult

CellEnd: TypeAlias = Literal["finished", "deadline", "interrupted", "died"]
"""How a cell ended: what it raised is no matter of that."""
_TABLE = "application/vnd.rollbox.table+json"


class CellError(NamedTuple):
    """What a cell raised: the name of its class, its text, and the traceback as Python prints it."""

    name: str
    value: str
    traceback: str


class Table(NamedTuple):
    """A data frame as data: at most its first 1000 rows, of `total_rows`."""

    columns: list[Any]
    rows: list[list[Any]]
    total_rows: int


class Variable(NamedTuple):
    """A variable of an interpreter: its name, the name of its type and the first 200 characters of its text."""

    name: str
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class CellResult:
    """A value that a cell shows, in all forms that it has.

    Attributes:
        forms: by media type, as bytes: images are no base64.
        main: whether it is the value of the cell's last expression; else `display` or matplotlib has shown it.
        truncated: whether its text was longer than the MiB that is kept.
    """

    forms: Mapping[str, bytes]
    main: bool = False
    truncated: bool = False

    def _text(self, mime: str) -> str | None:
        found = self.forms.get(mime)
        return None if found is None else found.decode("utf-8", "replace")

    @property
    def text(self) -> str | None:
        """As Python's `repr` has it."""
        return self._text("text/plain")

    @property
    def html(self) -> str | None:
        """HTML, as code in the sandbox has made it: show it to a person in a frame without scripts only."""
        return self._text("text/html")

    @property
    def markdown(self) -> str | None:
        """Markdown."""
        return self._text("text/markdown")

    @property
    def latex(self) -> str | None:
        """LaTeX."""
        return self._text("text/latex")

    @property
    def svg(self) -> str | None:
        """An image as SVG."""
        return self._text("image/svg+xml")

    @property
    def png(self) -> bytes | None:
        """An image as PNG."""
        return self.forms.get("image/png")

    @property
    def jpeg(self) -> bytes | None:
        """An image as JPEG."""
        return self.forms.get("image/jpeg")

    @property
    def json(self) -> Any:  # noqa: ANN401
        """A value as JSON has it; None where there is none, or the code has forged something else."""
        return _parsed(self.forms.get("application/json"))

    @property
    def table(self) -> Table | None:
        """The rows of a data frame of pandas or polars."""
        match _parsed(self.forms.get(_TABLE)):
            case {"columns": list(columns), "rows": list(rows), "total_rows": int(total)}:
                return Table(columns, rows, total)
        return None


class CellOutput(NamedTuple):
    """Some output of a cell that runs, as `Interpreter.stream` gives it."""

    stream: Literal["stdout", "stderr"]
    data: bytes

    @property
    def text(self) -> str:
        """As UTF-8; what is not is replaced, also half a character at an end of the data."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, repr=False)
class Cell:
    """How a cell ended, what it printed and what it shows.

    Attributes:
        end: finished, whether it raised or not; deadline; interrupted; died: its interpreter ended with it.
        error: what it raised; None: nothing.
        results: what it shows, in order: `display`, matplotlib, and last the value of its last expression.
        stdout_bytes, stderr_bytes: what it printed: the first bytes when there was more than `max_output_bytes`.
        stdout_total_bytes, stderr_total_bytes: how much it printed in all.
        background: what was printed between the cell before and this one, by threads and sub-processes.
        results_omitted: how many results or forms of them were too large, or too many.
        execution_count: its number in this interpreter, from 1; 0 where that died.
        variables_lost: whether the variables went with it: the interpreter died, or had to be killed.
        restarted: whether it was the first in a new interpreter, since the one before had ended.
        reason: why it died, in a sentence; empty where it did not.
        process: how the interpreter's process ended, where it did.
        run_ms: how long it ran, as the interpreter tells; total_ms: what the client waited.
        cell_id: its id; what is sent again with it does not run again.
    """

    end: CellEnd
    cell_id: str
    error: CellError | None = None
    results: tuple[CellResult, ...] = ()
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    stdout_total_bytes: int = 0
    stderr_total_bytes: int = 0
    background: bytes = b""
    results_omitted: int = 0
    execution_count: int = 0
    variables_lost: bool = False
    restarted: bool = False
    reason: str = ""
    process: ExecResult | None = None
    run_ms: float = 0.0
    total_ms: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it finished and raised nothing."""
        return self.end == "finished" and self.error is None

    @property
    def text(self) -> str | None:
        """The text of the value of its last expression; None where there is none."""
        return next((one.text for one in self.results if one.main), None)

    @property
    def stdout(self) -> str:
        """What it printed to stdout, as UTF-8; invalid bytes are replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """What it printed to stderr, likewise."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def stdout_truncated(self) -> bool:
        """Whether it printed more than is kept."""
        return self.stdout_total_bytes > len(self.stdout_bytes)

    @property
    def stderr_truncated(self) -> bool:
        """Whether it printed more to stderr than is kept."""
        return self.stderr_total_bytes > len(self.stderr_bytes)

    def __repr__(self) -> str:
        said = self.error.name if self.error else self.text
        return f"Cell(end={self.end!r}, {said!r}, stdout={self.stdout[:60]!r}, run_ms={self.run_ms:.1f})"


CellEvent: TypeAlias = CellOutput | CellResult | Cell
"""What `Interpreter.stream` gives: output and results as they come, and last the whole cell."""


def _parsed(data: bytes | None) -> Any:  # noqa: ANN401
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None
