"""What the bridge answers in SandboxFusion's words: results, refusals, and whose fault an error is. Pure.

`SandboxError` is what trainers leave out of the reward: it is said of what is no fault of the program alone.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rollbox import Cell, CellResult, ExecResult, SandboxError
from rollbox_bridges.faults import sentence

_KILLED: Final = -9
_OURS: Final = "application/vnd.rollbox."
_BINARY: Final = ("image/png", "image/jpeg", "application/pdf")
# To try again helps. Clients of this protocol that try again at all do so at this status alone.
BUSY: Final = 504
_LATER: Final = frozenset({"quota_exceeded", "rate_limited"})
_REFUSED: Final = {"invalid_argument": 422, "unsupported": 422, "unauthenticated": 401, "permission_denied": 403}


class Refusal(Exception):
    """An answer that is no result.

    Attributes:
        status: of HTTP.
        detail: a sentence, or what is wrong with each field.
        headers: beside the body.
    """

    def __init__(self, status: int, detail: Any, headers: Mapping[str, str] | None = None) -> None:  # noqa: ANN401
        super().__init__(detail if isinstance(detail, str) else json.dumps(detail))
        self.status = status
        self.detail = detail
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """The wire form."""
        return {"detail": self.detail}


class Busy(Refusal):
    """There is no room now; to try again helps."""

    def __init__(self, detail: str, after_s: float = 1) -> None:
        super().__init__(BUSY, detail, {"Retry-After": str(max(1, round(after_s)))})


def refusal_of(error: SandboxError) -> Refusal | None:
    """The refusal that an error of the platform is; None: it is a `SandboxError`."""
    if error.fault == "capacity" or error.code in _LATER:
        return Busy(sentence(error), (error.retry_after_ms or 1000) / 1000)
    status = _REFUSED.get(error.code)
    return None if status is None else Refusal(status, sentence(error))


def ran(result: ExecResult) -> dict[str, Any]:
    """How a command ended."""
    over = result.end == "deadline"
    code = result.exit_code if result.signal is None else -result.signal
    return {
        "status": "TimeLimitExceeded" if over else "Finished",
        "execution_time": result.run_ms / 1000,
        "return_code": None if over else _KILLED if code is None else code,
        "stdout": result.stdout,
        "stderr": result.stderr,
    }


def ended(error: SandboxError) -> dict[str, Any]:
    """How a command ended with which its sandbox has, by its own doing."""
    return told(return_code=_KILLED, stderr=sentence(error))


def told(return_code: int | None, stderr: str = "", run_s: float = 0.0, *, over: bool = False) -> dict[str, Any]:
    """The wire form of how a command, or a notebook, ended."""
    status = "TimeLimitExceeded" if over else "Finished"
    code = None if over else return_code
    return {"status": status, "execution_time": run_s, "return_code": code, "stdout": "", "stderr": stderr}


def notes(results: Sequence[ExecResult]) -> list[str]:
    """What the protocol has no place for, in words: nothing is cut without a sign of it."""
    killed = ["the program was killed for the memory that it took" for one in results if one.end == "oom_killed"]
    return killed + [
        f"{stream} was cut to its first {len(getattr(one, f'{stream}_bytes'))} of {total} bytes"
        if total
        else f"{stream} was lost with the sandbox"
        for one in results
        for stream, total in (("stdout", one.stdout_total_bytes), ("stderr", one.stderr_total_bytes))
        if getattr(one, f"{stream}_truncated")
    ]


def answer(
    build: Mapping[str, Any] | None,
    run: Mapping[str, Any] | None,
    files: Mapping[str, bytes],
    *,
    message: str = "",
    sandbox_id: str | None = None,
) -> dict[str, Any]:
    """The answer of `run_code`."""
    well = all(one is None or one["return_code"] == 0 for one in (build, run))
    return {
        "status": "Success" if well else "Failed",
        "message": message,
        "compile_result": build,
        "run_result": run,
        "executor_pod_name": sandbox_id,
        "files": _encoded(files),
    }


def notebook_answer(
    driver: Mapping[str, Any],
    cells: Sequence[Mapping[str, Any]],
    files: Mapping[str, bytes],
    *,
    message: str = "",
    sandbox_id: str | None = None,
) -> dict[str, Any]:
    """The answer of `run_jupyter`: what a cell raises is no failure of the notebook."""
    return {
        "status": "Success" if driver["return_code"] == 0 else "Failed",
        "message": message,
        "driver": driver,
        "cells": [*cells],
        "executor_pod_name": sandbox_id,
        "files": _encoded(files),
    }


def failure(message: str, *, notebook: bool) -> dict[str, Any]:
    """The answer of what failed by no fault of the program."""
    results: dict[str, Any] = (
        {"driver": None, "cells": []} if notebook else {"compile_result": None, "run_result": None}
    )
    return {"status": "SandboxError", "message": message, **results, "executor_pod_name": None, "files": {}}


def cell_of(cell: Cell) -> dict[str, Any]:
    """What one cell has answered."""
    error = []
    if cell.error is not None:
        name, value, traceback = cell.error
        error = [{"ename": name, "evalue": value, "traceback": traceback.splitlines()}]
    shown = [_shown(one) for one in cell.results]
    return {"stdout": cell.stdout, "stderr": cell.stderr, "display": shown, "error": error}


def _shown(result: CellResult) -> dict[str, Any]:
    return {mime: _form(mime, data) for mime, data in result.forms.items() if not mime.startswith(_OURS)}


def _form(mime: str, data: bytes) -> Any:  # noqa: ANN401 - JSON
    if mime in _BINARY:
        return b64encode(data).decode()
    text = data.decode("utf-8", "replace")
    if mime == "application/json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: b64encode(data).decode() for name, data in files.items()}
