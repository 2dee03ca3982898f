"""Where the gateway is and with which key to call it. Reads the process environment and one file; writes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rollbox.errors import InvalidArgument, Unauthenticated

_START = (
    "Start one on this machine with `rollbox up`, or set ROLLBOX_URL and ROLLBOX_API_KEY, "
    "or keep an address with `rollbox config set`."
)


CONTEXT = "ROLLBOX_CONTEXT"
"""The variable that names the context; without it that of `rollbox config use` is taken."""

context_first = False
"""Whether the context goes before ROLLBOX_URL and ROLLBOX_API_KEY in this process: `rollbox --context` says so."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The address of the gateway, the key, and where they were found (for `rollbox doctor`)."""

    url: str
    api_key: str = field(repr=False)
    source: str = "arguments"


def resolve(url: str | None = None, api_key: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Find the gateway: arguments, ROLLBOX_URL and ROLLBOX_API_KEY, the context, the file that `rollbox up` writes.

    A context is the one that ROLLBOX_CONTEXT or `rollbox config use` names. A key from a file is used only with the
    address from that file, so it is never sent elsewhere.

    Args:
        url: address of the gateway, http or https.
        api_key: the key of an owner.
        environ: the process environment; tests pass their own.

    Raises:
        InvalidArgument: there is no address, or it is not an http(s) address, or a file cannot be read, or the key
            could not be sent (a newline at its end, most often).
        Unauthenticated: there is an address but no key for it.
    Cost: reads at most three small files.
    """
    env = os.environ if environ is None else environ
    given_url = url or (None if context_first else env.get("ROLLBOX_URL"))
    given_key = api_key or (None if context_first else env.get("ROLLBOX_API_KEY"))
    if given_url and given_key:
        return Settings(_checked(given_url), _sendable(given_key), "arguments" if url else "ROLLBOX_URL")
    written = _of_context(env) or _written(env)
    if written is None and not given_url:
        places = ", ".join(str(path) for path in _places(env))
        raise InvalidArgument(f"no gateway address: ROLLBOX_URL is not set and there is none of {places}", hint=_START)
    if written and (not given_url or given_url.rstrip("/") == written.url):
        return Settings(written.url, _sendable(given_key or written.api_key), written.source)
    raise Unauthenticated(f"no API key for {given_url}: ROLLBOX_API_KEY is not set")


def checked(url: str, api_key: str) -> Settings:
    """Check an address and a key that are to be kept.

    Raises:
        InvalidArgument: one of them is none.
    """
    if not api_key:
        raise InvalidArgument("the API key is empty")
    return Settings(_checked(url), _sendable(api_key))


def contexts_path(env: Mapping[str, str]) -> Path | None:
    """Return where the file of `rollbox config` is, or would be; None: no place is known."""
    if env.get("ROLLBOX_CONFIG"):
        return Path(env["ROLLBOX_CONFIG"])
    if env.get("XDG_CONFIG_HOME"):
        return Path(env["XDG_CONFIG_HOME"]) / "rollbox" / "config.toml"
    return Path(env["HOME"]) / ".config" / "rollbox" / "config.toml" if env.get("HOME") else None


def _of_context(env: Mapping[str, str]) -> Settings | None:
    path, named = contexts_path(env), env.get(CONTEXT, "")
    # Not `Path.exists`, which raises where the folder may not be looked into.
    if path is None or not (named or os.path.exists(path)):  # noqa: PTH110
        return None
    from rollbox import contexts  # noqa: PLC0415 - most programs have no such file

    chosen = contexts.read(path).chosen(named, path)
    if chosen is None:
        return None
    name, context = chosen
    return Settings(_checked(context.url), _sendable(context.key(env)), f"context {name} of {path}")


def _places(env: Mapping[str, str]) -> list[Path]:
    if env.get("ROLLBOX_STATE_DIR"):
        return [Path(env["ROLLBOX_STATE_DIR"]) / "client.json"]
    folders = [Path("/run/rollbox")]
    if env.get("XDG_RUNTIME_DIR"):
        folders.append(Path(env["XDG_RUNTIME_DIR"]) / "rollbox")
    return [folder / "client.json" for folder in folders]


def _written(env: Mapping[str, str]) -> Settings | None:
    """Read the first client.json that this user may read; other users' files are skipped."""
    for path in _places(env):
        try:
            body: Any = json.loads(path.read_text())
            return Settings(_checked(str(body["url"])), str(body["api_key"]), str(path))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(f"{path} is not the file that `rollbox up` writes: {error!r}", hint=_START) from error
    return None


def _checked(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise InvalidArgument(f"the gateway address {url!r} does not start with http:// or https://")
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:
            raise ValueError("it has no host, or port 0")
    except ValueError as error:
        raise InvalidArgument(f"the gateway address {url!r} is not a URL: {error}") from error
    return url.rstrip("/")


def _sendable(api_key: str) -> str:
    """Refuse a key that no HTTP header can carry; the error does not contain the key."""
    wrong = next((at for at, letter in enumerate(api_key) if not "!" <= letter <= "~"), None)
    if wrong is not None:
        letter, length = api_key[wrong], len(api_key)
        raise InvalidArgument(f"the API key holds {letter!r} at position {wrong} of {length}; keys are visible ASCII")
    return api_key
