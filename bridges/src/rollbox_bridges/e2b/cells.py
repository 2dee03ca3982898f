"""Cells in the words of E2B's code interpreter: a JSON object a line. Pure.

All characters above U+007F are escaped: clients cut lines at more characters than the line feed.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from codecs import getincrementaldecoder
from typing import Any, Final

from rollbox import Cell, CellOutput, CellResult

_FORMS: Final = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/javascript": "javascript",
}
_BINARY: Final = frozenset({"image/png", "image/jpeg", "application/pdf"})
_TABLE: Final = "application/vnd.rollbox.table+json"
_QUOTES: Final = ("'", '"')


class Lines:
    """Writes the lines of one cell; of a character that comes in two pieces the first is held back."""

    def __init__(self) -> None:
        made = getincrementaldecoder("utf-8")
        self._held = {"stdout": made("replace"), "stderr": made("replace")}

    def output(self, event: CellOutput) -> bytes:
        """A piece of output; empty where no character is whole."""
        text = self._held[event.stream].decode(event.data)
        return self._text(event.stream, text) if text else b""

    def result(self, shown: CellResult) -> bytes:
        """A value that the cell shows."""
        told: dict[str, Any] = {"type": "result", "is_main_result": shown.main}
        extra: dict[str, Any] = {}
        for mime, data in shown.forms.items():
            if mime == "application/json":
                told["json"] = shown.json
            elif mime == _TABLE:
                told["data"] = _by_column(shown)
            elif mime in _FORMS:
                told[_FORMS[mime]] = _written(mime, data)
            else:
                extra[mime] = data.decode("utf-8", "replace")
        return _line({**told, **({"extra": extra} if extra else {})})

    def end(self, cell: Cell) -> bytes:
        """The lines after which nothing comes."""
        rest = [self._text(name, text) for name, one in self._held.items() if (text := one.decode(b"", final=True))]
        lost = [self._text("stderr", note) for note in _notes(cell)]
        count = _line({"type": "number_of_executions", "execution_count": cell.execution_count})
        error = _failure(cell)
        return b"".join([*rest, *lost, *([error] if error else []), count, _line({"type": "end_of_execution"})])

    def _text(self, stream: str, text: str) -> bytes:
        return _line({"type": stream, "text": text, "timestamp": time.time_ns()})


def keepalive() -> bytes:
    """A sign of life."""
    return _line({"type": "keepalive"})


def _failure(cell: Cell) -> bytes:
    if cell.error is not None:
        name, value, traceback = cell.error
        return _line({"type": "error", "name": name, "value": value, "traceback": traceback})
    if cell.end == "finished":
        return b""
    names = {"deadline": "TimeoutError", "interrupted": "KeyboardInterrupt", "died": "UnexpectedEndOfExecution"}
    value = cell.reason or f"the cell ended as {cell.end}"
    return _line({"type": "error", "name": names[cell.end], "value": value, "traceback": value})


def _notes(cell: Cell) -> list[str]:
    """What the protocol has no place for, in words: nothing is cut without a sign of it."""
    cut = [name for name in ("stdout", "stderr") if getattr(cell, f"{name}_truncated")]
    notes = [f"[rollbox: {name} was cut after its first bytes]\n" for name in cut]
    if cell.results_omitted:
        notes.append(f"[rollbox: {cell.results_omitted} results were too large, or too many]\n")
    return notes


def _written(mime: str, data: bytes) -> str:
    if mime in _BINARY:
        return b64encode(data).decode()
    text = data.decode("utf-8", "replace")
    # As E2B's server does: the text of a string has no quotes.
    if mime == "text/plain" and len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0]:
        return text[1:-1]
    return text


def _by_column(shown: CellResult) -> dict[str, list[Any]] | None:
    table = shown.table
    if table is None:
        return None
    return {str(name): [row[at] for row in table.rows if at < len(row)] for at, name in enumerate(table.columns)}


def _line(told: dict[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=True, separators=(",", ":"), default=str).encode() + b"\n"
