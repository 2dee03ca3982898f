"""`rollbox config`: named contexts, each with the address of a gateway and its key."""

from __future__ import annotations

import json as encoder
import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from rollbox import contexts, landing, settings
from rollbox._problem import SandboxError
from rollbox.cli import output
from rollbox.cli.options import Json, typed_in
from rollbox.contexts import Context, Contexts
from rollbox.errors import InvalidArgument, NotFound

app = typer.Typer(
    help="Named contexts: gateways and their keys. Kept in ROLLBOX_CONFIG, or rollbox/config.toml of XDG_CONFIG_HOME.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="A context: letters, digits, '-', '_' and '.'.")]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_COLUMNS = ("", "context", "gateway", "key")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the contexts; `*` marks the one that is taken."""
    found = _read(as_json=json)
    current = os.environ.get(settings.CONTEXT) or found.current
    if json:
        told = {name: {"url": one.url, "key": _key(one)} for name, one in found.by_name.items()}
        output.data({"current": current, "contexts": told})
        return
    rows: list[tuple[str, ...]] = []
    for name, one in sorted(found.by_name.items()):
        rows.append(("*" if name == current else "", name, one.url, _key(one)))
    output.table(_COLUMNS, rows)


@app.command()
def show(json: Json = False) -> None:
    """Show which gateway commands call here, and where that is said; never the key."""
    try:
        found = settings.resolve()
    except SandboxError as error:
        output.fail(error, as_json=json)
    if json:
        output.data({"url": found.url, "source": found.source})
    else:
        output.line(f"{found.url}  (from {found.source})")


@app.command("set")
def set_(
    name: Name,
    url: Annotated[str, typer.Argument(help="The gateway: https://...")],
    *,
    key_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="The variable that has the API key; the file has no key.")
    ] = None,
    key_stdin: Annotated[
        bool, typer.Option("--key-stdin", help="Read the API key from the standard input, and keep it in the file.")
    ] = False,
    json: Json = False,
) -> None:
    """Add a context, or replace one. The first one is taken at once; `use` takes another."""
    if (key_env is None) == (not key_stdin):
        hint = "A key among the arguments would be seen in the list of processes, so there is no option for it."
        output.fail(InvalidArgument("give --key-env VARIABLE or --key-stdin", hint=hint), as_json=json)
    found = _read(as_json=json, to_write=True)
    try:
        if not _NAME.fullmatch(name):
            raise InvalidArgument(f"{name!r} is not 1 to 64 letters, digits, '-', '_' and '.'")
        key = typed_in(sys.stdin.readline).strip() if key_stdin else ""
        settings.checked(url, key if key_stdin else "unseen")
    except SandboxError as error:
        output.fail(error, as_json=json)
    changed = {**found.by_name, name: Context(url.rstrip("/"), key, key_env or "")}
    _write(Contexts(changed, found.current or name), as_json=json)
    _told(name, as_json=json)


@app.command()
def use(name: Annotated[str, typer.Argument(help="A context; '-' for none.")], json: Json = False) -> None:
    """Take a context from now on; with `-` none: then the stack of `rollbox up` on this machine is called."""
    found = _read(as_json=json, to_write=True)
    chosen = "" if name == "-" else _known(found, name, as_json=json)
    _write(Contexts(found.by_name, chosen), as_json=json)
    _told(chosen, as_json=json)


@app.command()
def remove(name: Name, json: Json = False) -> None:
    """Remove a context."""
    found = _read(as_json=json, to_write=True)
    _known(found, name, as_json=json)
    left = {other: one for other, one in found.by_name.items() if other != name}
    _write(Contexts(left, "" if found.current == name else found.current), as_json=json)
    _told(name, as_json=json)


def _told(name: str, *, as_json: bool) -> None:
    if as_json:
        output.data({"name": name})
    elif name:
        typer.echo(name)


def _known(found: Contexts, name: str, *, as_json: bool) -> str:
    if name not in found.by_name:
        nearest = output.nearest(name, found.by_name)
        output.fail(
            NotFound(f"there is no context {name!r}", hint=nearest or "See: rollbox config list"), as_json=as_json
        )
    return name


def _key(context: Context) -> str:
    return f"in {context.api_key_env}" if context.api_key_env else "in the file"


def _path(*, as_json: bool) -> Path:
    path = settings.contexts_path(os.environ)
    if path is None:
        output.fail(InvalidArgument("set ROLLBOX_CONFIG: neither XDG_CONFIG_HOME nor HOME is set"), as_json=as_json)
    return path


def _read(*, as_json: bool, to_write: bool = False) -> Contexts:
    path = _path(as_json=as_json)
    try:
        # Before it is read, which waits for ever at a FIFO.
        if to_write and path.exists() and not path.is_file():
            raise InvalidArgument(f"{path} is no file that contexts can be kept in", hint="Set ROLLBOX_CONFIG.")
        return contexts.read(path)
    except SandboxError as error:
        output.fail(error, as_json=as_json)


def _write(found: Contexts, *, as_json: bool) -> None:
    """Write the file, readable by its user only; where a link leads to it, the file that the link leads to."""
    path = _path(as_json=as_json)
    try:
        with landing.told(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = landing.Landing(str(path))
            try:
                file.write(_toml(found).encode())
                file.commit(0o600)
            finally:
                file.close()
    except SandboxError as error:
        output.fail(error, as_json=as_json)


def _toml(found: Contexts) -> str:
    lines = [f"current = {_text(found.current)}"]
    for name, one in sorted(found.by_name.items()):
        key = ("api_key_env", one.api_key_env) if one.api_key_env else ("api_key", one.api_key)
        lines += ["", f"[contexts.{_text(name)}]", f"url = {_text(one.url)}", f"{key[0]} = {_text(key[1])}"]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    # A string of JSON without escapes above U+FFFF is one of TOML.
    return encoder.dumps(value, ensure_ascii=False)
