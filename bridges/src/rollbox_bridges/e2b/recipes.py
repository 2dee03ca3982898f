"""The steps of a template as a Dockerfile; what cannot be one is refused. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rollbox_bridges.e2b.words import Refusal, unsupported

BASES: Final = frozenset({"base", "e2bdev/base"})
"""What clients begin with that are told no image."""
_TAKEN: Final = frozenset(
    ["fromImage", "fromTemplate", "fromImageRegistry", "force", "steps", "startCmd", "readyCmd"],
)
_STEP: Final = frozenset({"type", "args", "force", "filesHash", "forceUpload"})
_MOST_STEPS: Final = 500
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_MODE: Final = re.compile(r"[0-7]{3,4}")
# The user that every image of E2B has: clients name it by themselves.
_THEIR_USER: Final = "user"
_MAKE_USER: Final = (
    "id -u user > /dev/null 2>&1 || { echo user:x:1000:1000::/home/user:/bin/sh >> /etc/passwd"
    " && echo user:x:1000: >> /etc/group && mkdir -p /home/user && chown 1000:1000 /home/user; }"
)
# Their commands are those of a login shell, of bash where there is one.
_SHELL: Final = 'if command -v bash > /dev/null; then exec bash -l -c "$0"; fi; exec sh -l -c "$0"'


class Recipe(NamedTuple):
    """How a template is built.

    Attributes:
        base: the image or the template that it begins with.
        of_template: whether that is a template.
        steps: of the Dockerfile, without its first line.
        files: hashes of the archives whose files its steps copy; those of one are below a folder of that name.
    """

    base: str
    of_template: bool
    steps: Sequence[str]
    files: frozenset[str]

    def dockerfile(self, image: str) -> str:
        """The whole of it, on an image."""
        return "\n".join([f"FROM {image}", *self.steps, ""])


def recipe_of(body: Mapping[str, Any], nonce: str) -> Recipe:
    """Read the body that starts a build.

    Args:
        body: of the request.
        nonce: another one for each build, by which a step that is forced is no earlier one.

    Raises:
        Refusal: it is malformed, or asks for what there is not.
    """
    _refuse(body)
    base = _text(body, "fromTemplate") or _text(body, "fromImage")
    if base is None or (body.get("fromTemplate") and body.get("fromImage")):
        raise Refusal(400, "there is to be a fromImage or a fromTemplate, and not both")
    steps = [] if body.get("steps") is None else body["steps"]
    if not isinstance(steps, list) or len(steps) > _MOST_STEPS:
        raise Refusal(400, f"steps is not a list of at most {_MOST_STEPS}")
    written = _Written(nonce, forced=body.get("force") is True)
    for at, step in enumerate(steps, 1):
        try:
            written.add(step)
        except Refusal as error:
            raise Refusal(error.status, f"step {at}: {error.message}", error.code) from error
    return Recipe(base, body.get("fromTemplate") is not None, written.whole(), frozenset(written.files))


def is_hash(text: object) -> bool:
    """Whether this is the hash of an archive of files."""
    return isinstance(text, str) and _HASH.fullmatch(text) is not None


class _Written:
    """A Dockerfile that is written step by step.

    Args:
        nonce: see `recipe_of`.
        forced: whether no step may be an earlier one.
    """

    def __init__(self, nonce: str, *, forced: bool) -> None:
        self._nonce = nonce
        self._lines: list[str] = []
        self._user: str | None = None
        self._their_user = False
        self.files: set[str] = set()
        if forced:
            self._force()

    def add(self, step: Any) -> None:  # noqa: ANN401 - JSON
        """Write one step."""
        if not isinstance(step, dict) or step.keys() - _STEP:
            raise Refusal(400, f"it is not an object of {', '.join(sorted(_STEP))}")
        args = step.get("args") or []
        if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
            raise Refusal(400, "its args are not a list of texts")
        write = {
            "RUN": self._run,
            "COPY": self._copy,
            "WORKDIR": self._folder,
            "USER": self._as_user,
            "ENV": self._variables,
        }.get(str(step.get("type")))
        if write is None:
            raise unsupported(f"a step of the type {step.get('type')!r}")
        if step.get("force") is True:
            self._force()
        write(args, step)

    def whole(self) -> list[str]:
        """All lines."""
        made = ["USER root", f"RUN {json.dumps(['/bin/sh', '-c', _MAKE_USER])}"] if self._their_user else []
        return [*made, *self._lines]

    def _force(self) -> None:
        self._lines.append(f"ARG FORCED_{len(self._lines)}={self._nonce}")

    def _run(self, args: Sequence[str], _: Mapping[str, Any]) -> None:
        command, user = _words(args, 1, 2)
        run = f"RUN {json.dumps(['/bin/sh', '-c', _SHELL, command])}"
        if not user or user == self._user:
            self._lines.append(run)
            return
        self._lines += [f"USER {self._checked(user)}", run, f"USER {self._user or 'root'}"]

    def _copy(self, args: Sequence[str], step: Mapping[str, Any]) -> None:
        source, place, user, mode = _words(args, 2, 4)
        files = step.get("filesHash")
        if not isinstance(files, str) or not is_hash(files):
            raise Refusal(400, "filesHash is not a SHA-256 in lower-case hexadecimal digits")
        if source.startswith("/") or ".." in source.split("/"):
            raise Refusal(400, f"{source[:200]!r} is outside of the context")
        if mode and not _MODE.fullmatch(mode):
            raise Refusal(400, f"{mode[:20]!r} is no mode of files")
        flags = [f"--chown={self._checked(user)}"] if user else []
        flags += [f"--chmod={mode}"] if mode else []
        self.files.add(files)
        self._lines.append(" ".join(["COPY", *flags, json.dumps([f"{files}/{source}", place], ensure_ascii=False)]))

    def _folder(self, args: Sequence[str], _: Mapping[str, Any]) -> None:
        (folder,) = _words(args, 1, 1)
        self._lines.append(f"WORKDIR {_line(folder)}")

    def _as_user(self, args: Sequence[str], _: Mapping[str, Any]) -> None:
        (user,) = _words(args, 1, 1)
        self._user = self._checked(user)
        self._lines.append(f"USER {user}")

    def _variables(self, args: Sequence[str], _: Mapping[str, Any]) -> None:
        if len(args) % 2:
            raise Refusal(400, "its args are not names and values in turn")
        for name, value in zip(args[::2], args[1::2], strict=True):
            if not _VARIABLE.fullmatch(name):
                raise Refusal(400, f"{name[:100]!r} is no name of a variable")
            quoted = _line(value).replace("\\", "\\\\").replace('"', '\\"')
            self._lines.append(f'ENV {name}="{quoted}"')

    def _checked(self, user: str) -> str:
        if not _USER.fullmatch(user):
            raise Refusal(400, f"{user[:100]!r} is no name of a user")
        self._their_user |= user.partition(":")[0] == _THEIR_USER
        return user


def _refuse(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        if name not in _TAKEN:
            raise Refusal(400, f"the field {name!r} is not known here, and would be ignored", "invalid_argument")
        if name in {"startCmd", "readyCmd"} and value:
            raise unsupported(f"{name} of a template", "Run it in each sandbox: only files are in a template.")
        if name == "fromImageRegistry" and value is not None:
            raise unsupported("credentials of a registry", "The installation has credentials of registries of its own.")


def _words(args: Sequence[str], least: int, most: int) -> list[str]:
    if not least <= len(args) <= most or not all(args[:least]):
        raise Refusal(400, f"its args are not {least} to {most} texts")
    return [*args, *[""] * (most - len(args))]


def _line(text: str) -> str:
    """A text that is to be on one line."""
    if not text.isprintable():
        raise Refusal(400, f"{text[:100]!r} has a character that is not printable")
    return text


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and (not isinstance(value, str) or not re.fullmatch(r"[!-~]{1,512}", value)):
        raise Refusal(400, f"{name} {value!r} is not the name of an image")
    return value or None
