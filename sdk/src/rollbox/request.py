"""Request bodies, checked before anything is sent, so that an invalid argument fails at once, by its name. Pure."""

from __future__ import annotations

import math
import os
import posixpath
from base64 import b64encode
from collections.abc import AsyncIterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, Literal, Protocol, TypeAlias, TypedDict, TypeGuard

from rollbox.errors import InvalidArgument

Keep: TypeAlias = Literal["head", "tail"]
"""Which part of an output that is longer than its limit is kept."""

Command: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A string for the shell, or program and arguments; a path object is one argument."""

Directory: TypeAlias = str | os.PathLike[str]
"""The directory of a command, in the sandbox."""

Variables: TypeAlias = Mapping[str, str | os.PathLike[str]]
"""Environment variables; a value may be a path object, as for `subprocess`."""

InitialFiles: TypeAlias = Mapping[Any, bytes | str | os.PathLike[str]]
"""By absolute path, as text or path object: bytes, text (UTF-8), or the path of a local file, whose mode is kept."""

WAIT_TIMEOUT_S = 60.0
"""How long a delete that waits for the cluster's confirmation waits, unless told otherwise."""


class Readable(Protocol):
    """An open binary file."""

    def read(self, size: int, /) -> bytes:
        """Read at most so many bytes; none at the end."""


Stdin: TypeAlias = bytes | str | AsyncIterable[bytes] | Readable
"""What a command reads: bytes, text (as UTF-8), an asynchronous iterator of bytes, or an open binary file."""

WHOLE_STDIN_BYTES = 2**20
"""A larger input is streamed separately: gateway and sidecar would hold a request with it whole in memory."""


class ExecOptions(TypedDict, total=False):
    """The options of `Sandbox.exec`, for code that passes them on; described there."""

    cwd: Directory | None
    env: Variables | None
    user: str | None
    stdin: Stdin
    timeout: float | None
    max_output_bytes: int | None
    max_stderr_bytes: int | None
    keep: Keep
    merge: bool
    umask: int | None
    check: bool
    exec_id: str | None


class ShellOptions(TypedDict, total=False):
    """The options of `Sandbox.shell` but `terminal`, for code that passes them on; described there."""

    cwd: Directory | None
    env: Variables | None
    user: str | None
    max_output_bytes: int


class ShellRunOptions(TypedDict, total=False):
    """The options of `Shell.run`, for code that passes them on; described there."""

    timeout: float | None
    check: bool
    cwd: Directory | None
    env: Variables | None
    stdin: Stdin
    max_output_bytes: int | None


# Of what ends with its client. A program whose event loop is blocked, as by a step of training, counts as gone after
# 15 s, and comes back: a guess at the longest step.
ORPHAN_GRACE_S: Final = 900.0


class SpawnOptions(TypedDict, total=False):
    """The options of `Sandbox.spawn`, for code that passes them on; described there."""

    cwd: Directory | None
    env: Variables | None
    user: str | None
    umask: int | None
    stdin: bool | bytes | str
    terminal: tuple[int, int] | None
    timeout: float | None
    max_output_bytes: int | None
    max_stderr_bytes: int | None
    output_waits: bool
    orphan_grace: float | None
    exec_id: str | None


def exec_body(
    cmd: Command,
    exec_id: str,
    *,
    cwd: Directory | None,
    env: Variables | None,
    user: str | None,
    stdin: Stdin,
    timeout: float | None,
    max_output_bytes: int | None = None,
    max_stderr_bytes: int | None = None,
    keep: Keep = "tail",
    merge: bool = False,
    umask: int | None = None,
) -> dict[str, Any]:
    """Build the body of an exec, arguments as in `Sandbox.exec`; InvalidArgument for an invalid one.

    With an input that is large or of unknown size it has `stdin_open`: the input is streamed separately.
    """
    body: dict[str, Any] = {"exec_id": exec_id, **_command(cmd)}
    if env or cwd is not None or user is not None:
        body.update(command_settings(env, cwd, user))
    if _is_whole(stdin):
        body.update(_stdin(stdin) if stdin else {})
    else:
        body["stdin_open"] = True
    if timeout is not None:
        body["timeout_ms"] = milliseconds("timeout", timeout)
    if max_output_bytes is not None:
        body["max_output_bytes"] = count("max_output_bytes", max_output_bytes)
    if max_stderr_bytes is not None:
        body["max_stderr_bytes"] = count("max_stderr_bytes", max_stderr_bytes)
    if keep != "tail":
        body["keep"] = _keep(keep)
    if merge:
        if max_stderr_bytes is not None:
            raise InvalidArgument("max_stderr_bytes is given with merge: all output is stdout")
        body["merge"] = True
    if umask is not None:
        body["umask"] = bits("umask", umask, 0o777)
    return body


def spawn_body(
    cmd: Command,
    exec_id: str,
    *,
    stdin: bool | bytes | str,
    terminal: tuple[int, int] | None,
    output_waits: bool,
    orphan_grace: float | None,
    cwd: Directory | None,
    env: Variables | None,
    user: str | None,
    umask: int | None,
    timeout: float | None,
    max_output_bytes: int | None,
    max_stderr_bytes: int | None,
) -> dict[str, Any]:
    """Build the body of a spawn, arguments as in `Sandbox.spawn`.

    Raises:
        InvalidArgument: for an invalid one.
    """
    body = exec_body(
        cmd,
        exec_id,
        cwd=cwd,
        env=env,
        user=user,
        stdin=b"" if isinstance(stdin, bool) else _whole(stdin),
        timeout=timeout,
        max_output_bytes=max_output_bytes,
        max_stderr_bytes=max_stderr_bytes,
        umask=umask,
    )
    if terminal is not None:
        if not isinstance(terminal, Sequence) or isinstance(terminal, str) or len(terminal) != 2:
            raise InvalidArgument(f"terminal {terminal!r} is not its columns and rows, like (80, 24)")
        body["terminal"] = window(*terminal)
    if orphan_grace is not None:
        body["orphan_grace_ms"] = milliseconds("orphan_grace", orphan_grace)
    return {**body, "stdin_open": stdin is not False, "output_waits": output_waits}


def window(columns: int, rows: int) -> dict[str, int]:
    """Build the size of a terminal; InvalidArgument for one that no terminal has."""
    return {name: count(name, value, most=65_535) for name, value in (("columns", columns), ("rows", rows))}


def hint_when_not_found(cmd: Command) -> str | None:
    """Return a hint for a command that was not found; None when there is nothing to add to its name."""
    if isinstance(cmd, str):
        # A string is run by the shell, so the shell is what was not found.
        return "The image has no shell: pass the command as a list of arguments."
    if not isinstance(cmd, os.PathLike) and len(cmd) == 1 and " " in str(cmd[0]):
        return "A list is run without a shell: pass a string for a shell line, or one list item for each argument."
    return None


def milliseconds(name: str, seconds: float) -> int:
    """Convert seconds to whole milliseconds, at least 1.

    Raises:
        InvalidArgument: it is not a positive finite number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds <= 0:
        raise InvalidArgument(f"{name} {repr(seconds).removesuffix('.0')} is not a positive number of seconds")
    return max(1, round(seconds * 1000))


def count(name: str, value: int, *, most: int | None = None) -> int:
    """Return the value.

    Raises:
        InvalidArgument: it is not a whole number of at least 1, and at most `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} {value!r} is not a whole number of at least 1")
    if most is not None and value > most:
        raise InvalidArgument(f"{name} {value!r} is more than {most}")
    return value


def bits(name: str, value: int, most: int) -> int:
    """Return the value, such as a file's mode.

    Raises:
        InvalidArgument: it is not a whole number from 0 to `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise InvalidArgument(f"{name} {value!r} is not a whole number from 0 to 0o{most:o}")
    return value


def key(name: str, value: str) -> str:
    """Return the value.

    Raises:
        InvalidArgument: it cannot be an idempotency key or exec_id: 1 to 128 visible ASCII characters.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= 128 or not all("!" <= letter <= "~" for letter in value):
        raise InvalidArgument(f"{name} {value!r} is not 1 to 128 visible ASCII characters")
    return value


def image(image: str | None, checkpoint: str | None) -> str:
    """Return what a sandbox is to be started from.

    Raises:
        InvalidArgument: there is neither an image nor a checkpoint, or both, or that is the id of no checkpoint.
    """
    if (image is None) == (checkpoint is None):
        raise InvalidArgument("a sandbox is started from an image or from a checkpoint: give one of both")
    if image is not None:
        return image
    # The id, or the name of the image that it is the tag of. Anything else would be taken for an image's name.
    if ":cp-" not in f":{checkpoint}":
        hint = "An id is like cp-...: `commit(checkpoint=True)` and `rollbox checkpoint` return it."
        raise InvalidArgument(f"{str(checkpoint)!r} is not the id of a checkpoint", hint=hint)
    return str(checkpoint)


def commit_body(name: str | None, *, checkpoint: bool, ttl: float | None) -> dict[str, Any]:
    """Build what the body of a commit says of the name, arguments as in `Sandbox.commit`.

    Raises:
        InvalidArgument: one of them is invalid, or they contradict each other.
    """
    if (name is None) is not checkpoint:
        raise InvalidArgument("a commit has a name, or checkpoint=True")
    if ttl is not None and not checkpoint:
        raise InvalidArgument("ttl is for checkpoints: an image with a name stays until it is removed")
    if name is not None:
        return {"name": text("name", name)}
    return {} if ttl is None else {"ttl_ms": milliseconds("ttl", ttl)}


def _command(cmd: Command) -> dict[str, Any]:
    if isinstance(cmd, str):
        if not cmd.strip():
            raise InvalidArgument(f"the command {cmd!r} is empty")
        return {"command": text("command", cmd)}
    if isinstance(cmd, os.PathLike):
        cmd = [cmd]
    if isinstance(cmd, bytes | bytearray) or not isinstance(cmd, Sequence):
        raise InvalidArgument(f"the command {cmd!r} is neither a string (for the shell) nor a sequence of strings")
    if not cmd:
        raise InvalidArgument("the command is an empty sequence")
    return {"argv": [path_or_text("an argument of the command", part) for part in cmd]}


def wait_s(wait: bool, wait_timeout: float | None) -> float:
    """Return how many seconds a delete waits for the cluster's confirmation; 0 when it does not wait.

    Raises:
        InvalidArgument: a timeout without a wait, or one that is not a positive number of seconds.
    """
    if wait:
        return milliseconds("wait_timeout", WAIT_TIMEOUT_S if wait_timeout is None else wait_timeout) / 1000
    if wait_timeout is not None:
        raise InvalidArgument("wait_timeout is given without wait: nothing is waited for")
    return 0.0


def command_settings(env: Variables | None, cwd: Directory | None, user: str | None) -> dict[str, Any]:
    """Write variables, directory and user, which creates and execs share.

    Raises:
        InvalidArgument: one of them is not text that every process can take, or a variable has no name that can be one.
    """
    body: dict[str, Any] = {}
    if env:
        variables: dict[str, str] = {}
        for name, value in env.items():
            if not text("a name in env", name) or "=" in name:
                raise InvalidArgument(f"the name {name!r} in env is empty or holds '='")
            variables[name] = path_or_text(f"env[{name!r}]", value)
        body["env"] = variables
    if cwd is not None:
        body["cwd"] = untilded("cwd", path_or_text("cwd", cwd))
    if user is not None:
        body["user"] = text("user", user)
    return body


def made_by_files(cwd: Directory, files: InitialFiles) -> bool:
    """Whether the directory is one that these files make: one of them is below it."""
    place = PurePosixPath(posixpath.normpath(cwd))
    # What is none is refused where the files are checked.
    names = [name for name in files if isinstance(name, str | os.PathLike)] if isinstance(files, Mapping) else []
    return any(place in PurePosixPath(posixpath.normpath(name)).parents for name in names)


def _whole(stdin: bytes | str) -> bytes | str:
    """The beginning of an input that is kept open, as it is sent with the start."""
    if not isinstance(stdin, bytes | str) or not _is_whole(stdin):
        raise InvalidArgument(f"stdin is {type(stdin).__name__}: not True, False, or at most 1 MiB of bytes or text")
    return stdin


def _is_whole(stdin: Stdin) -> TypeGuard[bytes | str]:
    if isinstance(stdin, bytes | bytearray | memoryview | str):
        return len(_encodable("stdin", stdin) if isinstance(stdin, str) else stdin) <= WHOLE_STDIN_BYTES
    if isinstance(stdin, AsyncIterable) or hasattr(stdin, "read"):
        return False
    kind = type(stdin).__name__
    raise InvalidArgument(f"stdin is {kind}: not bytes, text, a file or an asynchronous iterator")


def _stdin(stdin: bytes | str) -> dict[str, str]:
    if isinstance(stdin, str):
        return {"stdin": stdin}
    return {"stdin": b64encode(stdin).decode("ascii"), "stdin_encoding": "base64"}


def _keep(keep: str) -> str:
    if keep not in ("head", "tail"):
        raise InvalidArgument(f"keep {keep!r} is neither 'head' nor 'tail'")
    return keep


def text(name: str, value: str) -> str:
    """Return the value.

    Raises:
        InvalidArgument: it is not text that every process can take: it holds NUL, or is not valid Unicode.
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r}, not a string")
    if "\0" in value:
        raise InvalidArgument(f"{name} {value[:100]!r} holds a NUL character")
    return _encodable(name, value)


def path_or_text(name: str, value: str | os.PathLike[str]) -> str:
    """As `text`, for a path object too."""
    return text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def untilded(name: str, path: str) -> str:
    """Return the path.

    Raises:
        InvalidArgument: it begins with `~`, which only a shell takes for a home: a file of this name would be made.
    """
    if path.startswith("~"):
        hint = "Write the home itself, like /root (on this side: pathlib.Path.expanduser); ./~ is a file of this name."
        raise InvalidArgument(f"{name} {path!r} begins with ~, which only a shell takes for a home", hint=hint)
    return path


def _encodable(name: str, value: str) -> str:
    if value.isascii():
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name} is not valid Unicode text at character {error.start}; pass bytes") from error
    return value
