"""Named contexts: which gateway to call with which key, from a file that `rollbox config` writes.

Here it is only read. It is the one file of rollbox that may be in the home folder: it is made by no call of the SDK and
no other command, and only where the user says (ROLLBOX_CONFIG) or where programs of the desktop keep such files
(XDG_CONFIG_HOME, or ~/.config). Without it every setting comes from the environment, as in a cluster or a trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollbox.errors import InvalidArgument, Unauthenticated

_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Context:
    """Where a gateway is, and where its key comes from.

    Attributes:
        url: its address.
        api_key: the key itself; "" where it is in a variable.
        api_key_env: the variable that has the key; "" where the file has it.
    """

    url: str
    api_key: str = field(default="", repr=False)
    api_key_env: str = ""

    def key(self, env: Mapping[str, str]) -> str:
        """Return the key.

        Raises:
            Unauthenticated: the variable is not set.
        """
        if not self.api_key_env:
            return self.api_key
        if not env.get(self.api_key_env):
            raise Unauthenticated(f"the variable {self.api_key_env}, which has the key for {self.url}, is not set")
        return env[self.api_key_env]


@dataclass(frozen=True, slots=True)
class Contexts:
    """What the file says: contexts by name, and which of them is taken; "" for none."""

    by_name: dict[str, Context]
    current: str = ""

    def chosen(self, chosen_by: str, path: Path) -> tuple[str, Context] | None:
        """Return the context to take and its name; None: none is chosen.

        Args:
            chosen_by: the name that the environment says; "" for none.
            path: of the file, for the error.

        Raises:
            InvalidArgument: there is none of this name.
        """
        name = chosen_by or self.current
        if not name:
            return None
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise InvalidArgument(f"there is no context {name!r} in {path}; there are: {known}")
        return name, self.by_name[name]


def read(path: Path) -> Contexts:
    """Read the file; one that is not there has no contexts.

    Raises:
        InvalidArgument: it is not what `rollbox config` writes, or has a key and others may read it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Contexts({})
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
    found = _parsed(path, text)
    if any(one.api_key for one in found.by_name.values()) and path.stat().st_mode & _OTHERS:
        raise InvalidArgument(f"{path} has API keys and others may read it", hint=f"Run: chmod 600 {path}")
    return found


def _parsed(path: Path, text: str) -> Contexts:
    import tomllib  # noqa: PLC0415 - most programs have no such file

    try:
        body: dict[str, Any] = tomllib.loads(text)
        contexts = {str(name): Context(**told) for name, told in body.pop("contexts", {}).items()}
        found = Contexts(contexts, **body)
    except (tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"{path} is not the file that `rollbox config` writes: {error}") from error
    values = [found.current, *(part for one in contexts.values() for part in (one.url, one.api_key, one.api_key_env))]
    if not all(isinstance(value, str) for value in values):
        raise InvalidArgument(f"{path} is not the file that `rollbox config` writes: a value is not text")
    return found
