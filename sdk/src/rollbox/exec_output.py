"""The end and the output of a command, without what raises errors, so that an error can carry them.

Pure: JSON in, a dataclass out; a large output is copied once and never iterated over.
"""

from __future__ import annotations

import signal
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

ExecEnd = Literal["exited", "signalled", "deadline", "oom_killed", "cancelled"]

SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True, repr=False)
class ExecOutput:
    """How a command ended and what it wrote.

    All of an `ExecResult`, which describes the fields, but `check`.
    """

    end: ExecEnd = "exited"
    exit_code: int | None = None
    signal: int | None = None
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    stdout_total_bytes: int = 0
    stderr_total_bytes: int = 0
    queue_ms: float = 0.0
    spawn_ms: float = 0.0
    run_ms: float = 0.0
    replayed: bool = False
    exec_id: str = ""
    sandbox_id: str = ""

    @classmethod
    def from_json(cls, body: Mapping[str, Any], sandbox_id: str = "") -> Self:
        """Read the wire form. Cost: one copy of each stream."""
        return cls(
            end=body["end"],
            exit_code=body.get("exit_code"),
            signal=body.get("signal"),
            stdout_bytes=_stream(body, "stdout"),
            stderr_bytes=_stream(body, "stderr"),
            stdout_truncated=body.get("stdout_truncated", False),
            stderr_truncated=body.get("stderr_truncated", False),
            stdout_total_bytes=body.get("stdout_total_bytes", 0),
            stderr_total_bytes=body.get("stderr_total_bytes", 0),
            queue_ms=body.get("queue_ms", 0.0),
            spawn_ms=body.get("spawn_ms", 0.0),
            run_ms=body.get("run_ms", 0.0),
            replayed=body.get("replayed", False),
            exec_id=body.get("exec_id", ""),
            sandbox_id=sandbox_id,
        )

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json` and logs; a stream that is not UTF-8 is base64, see `*_encoding`."""
        body = {item.name: getattr(self, item.name) for item in fields(self) if not item.name.endswith("_bytes")}
        for name in ("stdout", "stderr"):
            body[name], body[f"{name}_encoding"] = _written(getattr(self, f"{name}_bytes"))
            body[f"{name}_total_bytes"] = getattr(self, f"{name}_total_bytes")
        return body

    @property
    def stdout(self) -> str:
        """stdout_bytes as UTF-8 text, invalid bytes replaced. Cost: decodes on each call."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """stderr_bytes as UTF-8 text, invalid bytes replaced. Cost: decodes on each call."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """True when the command exited with code 0."""
        return self.end == "exited" and self.exit_code == 0

    @property
    def signal_name(self) -> str:
        """The name of the signal that killed it, like "SIGKILL"; "" when none did."""
        if self.signal is None:
            return ""
        try:
            return signal.Signals(self.signal).name
        except ValueError:
            return f"signal {self.signal}"

    @property
    def timed_out(self) -> bool:
        """True when its timeout passed; what it wrote until then is in the result."""
        return self.end == "deadline"

    @property
    def oom_killed(self) -> bool:
        """True when the kernel killed it for passing the memory limit."""
        return self.end == "oom_killed"

    @property
    def mask_sample(self) -> bool:
        """True when the caller cancelled the command, which says nothing about the sample. Score every other end."""
        return self.end == "cancelled"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(end={self.end!r}, exit_code={self.exit_code}, stdout={_short(self.stdout_bytes)}, "
            f"stderr={_short(self.stderr_bytes)}, run_ms={self.run_ms:.3f})"
        )


def _stream(body: Mapping[str, Any], name: str) -> bytes:
    value: str = body.get(name, "")
    # JSON can hold lone surrogates, UTF-8 cannot; the gateway sends none, but one must not make the result unreadable.
    return b64decode(value) if body.get(f"{name}_encoding") == "base64" else value.encode("utf-8", "replace")


def _written(data: bytes) -> tuple[str, str]:
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return b64encode(data).decode("ascii"), "base64"


def _short(data: bytes) -> str:
    shown = data[:SHOWN_CHARS].decode("utf-8", "replace")
    return repr(shown) if len(data) <= SHOWN_CHARS else f"{shown!r}… ({len(data)} bytes)"
