"""Puts the answer of a cell together from the frames of its interpreter. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rollbox.interpreter.cell import Cell, CellError, CellOutput, CellResult, Variable
from rollbox.interpreter.frames import MOST_FRAME_BYTES, Frame, garbled

_MOST_RESULTS = 1000
# As Python and Node name it.
_INTERRUPTED = ("KeyboardInterrupt", "ERR_SCRIPT_EXECUTION_INTERRUPTED")
_STREAMS = {b"O": "stdout", b"E": "stderr"}


@dataclass
class Answer:
    """What has come of one cell.

    Attributes:
        key: of the cell.
        most: bytes of each stream that are kept; the interpreter is not trusted to stop there.
        restarted: whether it is the first cell of a new interpreter.
        waited_ms: says how long its caller has waited.
        variables: what was asked for, where that was variables.
    """

    key: str
    most: int
    restarted: bool = False
    waited_ms: Callable[[], float] = float
    variables: list[Variable] = field(default_factory=list)
    _kept: dict[str, bytearray] = field(default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()})
    _background: bytearray = field(default_factory=bytearray)
    _results: list[CellResult] = field(default_factory=list)
    _result_bytes: int = 0

    def take(self, frame: Frame) -> CellOutput | CellResult | Cell | None:
        """Take a frame: what a stream of the cell gives for it, a `Cell` at its end.

        Raises:
            Conflict: the interpreter does not send that.
        """
        kind, fields = frame
        if kind in _STREAMS and len(fields) == 1:
            return self._output(_STREAMS[kind], fields[0])
        if kind == b"B" and len(fields) == 2:
            self._background += fields[1][: max(0, 2**17 - len(self._background))]
            return None
        if kind == b"R" and fields[:1] == (b"variables",) and len(fields) % 3 == 1:
            texts = [_text(one) for one in fields[1:]]
            self.variables[:] = [Variable(*texts[at : at + 3]) for at in range(0, len(texts), 3)]
            return None
        if kind == b"R" and len(fields) % 2 == 1:
            return self._result(fields[0].split(), fields[1:])
        if kind == b"F" and len(fields) in (2, 5):
            return self._end(fields)
        raise garbled(f"a frame {kind!r} of {len(fields)} fields")

    def partial(self) -> Cell:
        """What has come so far, of a cell whose interpreter has died."""
        out, err = bytes(self._kept["stdout"]), bytes(self._kept["stderr"])
        return Cell(
            end="died",
            cell_id=self.key,
            results=tuple(self._results),
            stdout_bytes=out,
            stderr_bytes=err,
            stdout_total_bytes=len(out),
            stderr_total_bytes=len(err),
            background=bytes(self._background),
            variables_lost=True,
            restarted=self.restarted,
            total_ms=self.waited_ms(),
        )

    def _output(self, name: str, data: bytes) -> CellOutput | None:
        kept = self._kept[name]
        data = data[: max(0, self.most - len(kept))]
        kept += data
        return CellOutput("stdout" if name == "stdout" else "stderr", data) if data else None

    def _result(self, flags: list[bytes], parts: tuple[bytes, ...]) -> CellResult:
        self._result_bytes += sum(map(len, parts))
        if len(self._results) >= _MOST_RESULTS or self._result_bytes > MOST_FRAME_BYTES:
            raise garbled("more results than a cell may have")
        forms = {_text(mime): data for mime, data in zip(parts[::2], parts[1::2], strict=True)}
        result = CellResult(forms, main=b"main" in flags, truncated=b"cut" in flags)
        self._results.append(result)
        return result

    def _end(self, fields: tuple[bytes, ...]) -> Cell:
        if _text(fields[0]) != self.key:
            # Code that has sent an end of its own would shift all later answers by one.
            raise garbled("the end of another cell")
        try:
            count, run_us, out, err, omitted = map(int, fields[1].split())
        except ValueError as wrong:
            raise garbled("a number that is none") from wrong
        error = CellError(*map(_text, fields[2:])) if len(fields) > 2 else None
        return Cell(
            end="interrupted" if error and error.name in _INTERRUPTED else "finished",
            cell_id=self.key,
            error=error,
            results=tuple(self._results),
            stdout_bytes=bytes(self._kept["stdout"]),
            stderr_bytes=bytes(self._kept["stderr"]),
            stdout_total_bytes=max(out, len(self._kept["stdout"])),
            stderr_total_bytes=max(err, len(self._kept["stderr"])),
            background=bytes(self._background),
            results_omitted=omitted,
            execution_count=count,
            restarted=self.restarted,
            run_ms=run_us / 1000,
            total_ms=self.waited_ms(),
        )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
