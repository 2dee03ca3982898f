"""`POST exec`: a command of the shell, with all of its output in the answer, as the older generation asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from rollbox import ExecResult
from rollbox_bridges.bodies import json_object
from rollbox_bridges.faults import meaning
from rollbox_bridges.prime.sessions import Session
from rollbox_bridges.prime.words import Gone, Refusal

_FIELDS: Final = frozenset({"command", "working_dir", "env", "sandbox_id", "timeout", "user"})
_MOST_BODY: Final = 2**22
_MOST_S: Final = 2**31
_MOST_OUTPUT: Final = 2**24
"""Of each of its two outputs; the most that the platform keeps."""


async def run(request: web.Request, session: Session) -> web.StreamResponse:
    """Run a command to its end; a caller that goes away ends it."""
    body = await json_object(request, _FIELDS, _MOST_BODY)
    command, timeout = body.get("command"), body.get("timeout")
    if not isinstance(command, str):
        raise Refusal(400, "command is not text")
    if timeout is not None and not _is_seconds(timeout):
        raise Refusal(400, f"timeout {str(timeout)[:40]} is not a number of seconds above 0")
    if body.get("sandbox_id") not in (None, session.sandbox.id):
        raise Refusal(400, f"sandbox_id {body['sandbox_id']!r} is not the sandbox of the address")
    result = await session.sandbox.exec(
        command,
        cwd=_text(body, "working_dir"),
        env=_variables(body),
        user=_text(body, "user"),
        timeout=timeout,
        max_output_bytes=_MOST_OUTPUT,
    )
    if result.oom_killed:
        await _raise_if_gone(session)
    return web.json_response({"stdout": _all(result.stdout, result.stdout_truncated, result), **_rest(result)})


async def _raise_if_gone(session: Session) -> None:
    """Tell a command that has taken its whole sandbox with it, as one does under gVisor, by the end of that.

    Raises:
        Gone: the sandbox has ended; what the command has written is lost with it.
    """
    if (end := (await session.sandbox.refresh()).end) is not None:
        raise Gone(meaning(end))


def _is_seconds(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST_S


def _rest(result: ExecResult) -> dict[str, Any]:
    if result.end == "deadline":
        raise Refusal(408, "the command has reached its timeout, and was killed", "exec_deadline")
    # As a shell has it: 128 and the number of the signal.
    code = result.exit_code if result.exit_code is not None else 128 + (result.signal or 9)
    return {"stderr": _all(result.stderr, result.stderr_truncated, result), "exit_code": code}


def _all(text: str, truncated: bool, result: ExecResult) -> str:
    if truncated:
        size = max(result.stdout_total_bytes, result.stderr_total_bytes)
        detail = f"the command has run and has written {size} bytes, over the {_MOST_OUTPUT} of an answer"
        raise Refusal(413, f"{detail}: write to a file, and download it", "payload_too_large")
    return text


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise Refusal(400, f"{name} {value!r} is not text")
    return value or None


def _variables(body: Mapping[str, Any]) -> dict[str, str]:
    value = body.get("env")
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise Refusal(400, "env is not an object of texts")
    return dict(value)
