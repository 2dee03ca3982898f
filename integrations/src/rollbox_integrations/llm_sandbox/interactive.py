"""Sessions of Python whose variables stay from one run to the next."""

from __future__ import annotations

from llm_sandbox.data import ConsoleOutput, StreamCallback
from llm_sandbox.exceptions import LanguageNotSupportedError, NotOpenSessionError, SandboxTimeoutError

from rollbox import Cell, CellOutput, SandboxError
from rollbox.sync import Interpreter
from rollbox_integrations import outcome
from rollbox_integrations.llm_sandbox.session import RollboxSession

_MOST_OUTPUT_BYTES = 16 * 1024**2
_FAILED = 1


class RollboxInteractiveSession(RollboxSession):
    """A session over an interpreter of the platform, which needs the `python3` of the image and no other package.

    with SandboxSession(backend="rollbox-interactive", image="python:3.12") as session:
        session.run("x = 6")
        session.run("x * 7").stdout  # Out[2]: 42
    """

    _python: Interpreter | None = None

    def open(self) -> None:
        """Create the sandbox, and start its Python. As `RollboxSession.open`.

        Raises:
            LanguageNotSupportedError: the language is not Python.
        """
        if not self._of_python:
            raise LanguageNotSupportedError(str(self.config.lang))
        super().open()
        try:
            with self._telling():
                self._sandbox().files.mkdir(self.config.workdir)
                options = {"cwd": self.config.workdir, "max_output_bytes": _MOST_OUTPUT_BYTES}
                self._python = self._sandbox().interpreter(**options)  # type: ignore[arg-type]  # of InterpreterOptions
        except BaseException:
            self.close()
            raise

    def run(
        self,
        code: str,
        libraries: list[str] | None = None,
        timeout: float | None = None,
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> ConsoleOutput:
        """Run code that finds what earlier code has made; the value of its last expression is in stdout.

        Raises:
            SandboxTimeoutError: it has passed its time and was interrupted; the message says whether variables stayed.
            SandboxUnavailable: there is no sandbox any more, or the platform does not answer.
        """
        self._sandbox()
        if self._python is None or not self.is_open:
            raise NotOpenSessionError
        self._check_session_timeout()
        limit_s = timeout or self.config.get_execution_timeout()
        self._execute_with_timeout(self.install, libraries, timeout=limit_s)
        try:
            cell = _told(self._python, code, limit_s, (on_stdout, on_stderr))
        except SandboxError as error:
            return self._output(self._failed(error))
        if cell.end == "deadline":
            kept = "all variables are lost" if cell.variables_lost else "variables are kept"
            raise SandboxTimeoutError(
                f"Operation timed out after {limit_s:g} seconds; {kept}", timeout_duration=limit_s
            )
        return self._output(_ended(cell))


def _told(
    python: Interpreter, code: str, limit_s: float | None, to: tuple[StreamCallback | None, StreamCallback | None]
) -> Cell:
    if not any(to):
        return python.run(code, timeout=limit_s)
    for event in python.stream(code, timeout=limit_s):
        if isinstance(event, CellOutput) and (listener := to[event.stream == "stderr"]):
            listener(event.text)
        elif isinstance(event, Cell):
            return event
    raise RuntimeError("a cell has no end")


def _ended(cell: Cell) -> outcome.Outcome:
    shown = "" if cell.text is None else f"Out[{cell.execution_count}]: {cell.text}\n"
    if cell.end == "died":
        why = f"rollbox: the interpreter ended: {cell.reason}; all variables are lost\n"
        return outcome.Outcome(outcome.KILLED, cell.stdout_bytes, cell.stderr_bytes + why.encode())
    trace = "" if cell.error is None else cell.error.traceback
    status = 0 if cell.ok else _FAILED
    return outcome.Outcome(status, cell.stdout_bytes + shown.encode(), cell.stderr_bytes + trace.encode())
