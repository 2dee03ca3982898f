"""`rollbox ls`, `stat`, `mkdir`, `mv`, `rm` and `watch`: paths of a sandbox, written `ID:PATH`."""

from __future__ import annotations

import json as json_text
import stat as modes
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.exec import octal
from rollbox.cli.options import Json
from rollbox.errors import InvalidArgument

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.files import FileChange, FileInfo, Files, Listing

Path = Annotated[str, typer.Argument(metavar="ID:PATH", help="A path in a sandbox.")]
User = Annotated[str | None, typer.Option(help="User to act as in the sandbox.")]
_KINDS = {"file": modes.S_IFREG, "directory": modes.S_IFDIR, "symlink": modes.S_IFLNK, "other": 0}


@dataclass(frozen=True)
class Remote:
    """A path in a sandbox."""

    sandbox_id: str
    path: str


def ls(
    path: Path,
    *,
    long: Annotated[bool, typer.Option("--long", "-l", help="Mode, owner, size and time too.")] = False,
    recursive: Annotated[bool, typer.Option("--recursive", "-R", help="All below it.")] = False,
    limit: Annotated[int, typer.Option(help="The most entries to list.")] = 10_000,
    user: User = None,
    json: Json = False,
) -> None:
    """List a directory in a sandbox, or show one file."""
    from rollbox.files import Listing
    from rollbox.files.paths import shown

    async def call(client: Client) -> Listing:
        files, place = await _opened(client, path)
        info = await files.stat(place, user=user)
        if info.kind != "directory":
            return Listing([info], truncated=False)
        return await files.list(place, recursive=recursive, limit=limit, user=user)

    found = output.run(call, what=f"listing {path}", as_json=json)
    if json:
        output.data({"entries": [info.to_json() for info in found], "truncated": found.truncated})
        return
    for info in found:
        output.line(_long(info), indent="  ") if long else typer.echo(shown(info.path))
    if found.truncated:
        output.message(f"there are more than {limit} entries; `--limit` shows more")


def stat(
    path: Path,
    *,
    follow: Annotated[bool, typer.Option(help="Show the target of a symbolic link.")] = True,
    user: User = None,
    json: Json = False,
) -> None:
    """Show what is at a path: mode, owner, size, time of the last change."""

    async def call(client: Client) -> FileInfo:
        files, place = await _opened(client, path)
        return await files.stat(place, follow=follow, user=user)

    _print(output.run(call, what=f"fetching {path}", as_json=json), as_json=json)


def mkdir(
    path: Path,
    *,
    parents: Annotated[bool, typer.Option("--parents", "-p", help="Parents too; an existing one is no error.")] = False,
    mode: Annotated[str | None, typer.Option("--mode", "-m", metavar="OCTAL", help="Permissions, like 700.")] = None,
    user: User = None,
    json: Json = False,
) -> None:
    """Make a directory."""

    async def call(client: Client) -> FileInfo:
        bits = None if mode is None else octal("mode", mode)
        files, place = await _opened(client, path)
        return await files.mkdir(place, parents=parents, mode=bits, user=user)

    _print(output.run(call, what=f"making {path}", as_json=json), as_json=json)


def mv(
    source: Annotated[str, typer.Argument(metavar="ID:SRC", help="The path to rename.")],
    target: Annotated[str, typer.Argument(metavar="ID:DST", help="Its new path, in the same sandbox.")],
    *,
    replace: Annotated[bool, typer.Option("--force", "-f", help="Replace an existing target.")] = False,
    user: User = None,
    json: Json = False,
) -> None:
    """Rename within a sandbox."""

    async def call(client: Client) -> FileInfo:
        origin, end = remote(source), remote(target)
        if origin.sandbox_id != end.sandbox_id:
            hint = "From sandbox to sandbox copy by way of this machine, with `rollbox cp`."
            raise InvalidArgument(f"{source!r} and {target!r} are not in the same sandbox", hint=hint)
        files = (await client.connect(origin.sandbox_id)).files
        return await files.move(origin.path, end.path, replace=replace, user=user)

    _print(output.run(call, what=f"moving {source}", as_json=json), as_json=json)


def rm(
    path: Path,
    *,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Remove a directory with all in it.")] = False,
    missing_ok: Annotated[bool, typer.Option("--force", "-f", help="A missing path is no error.")] = False,
    user: User = None,
    json: Json = False,
) -> None:
    """Remove a file, a link or a directory."""

    async def call(client: Client) -> int:
        files, place = await _opened(client, path)
        return await files.remove(place, recursive=recursive, missing_ok=missing_ok, user=user)

    removed = output.run(call, what=f"removing {path}", as_json=json)
    if json:
        output.data({"removed": removed})


def watch(
    path: Path,
    *,
    recursive: Annotated[bool, typer.Option("--recursive", "-R", help="All below it.")] = False,
    user: User = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print changes below a path as they happen, until Ctrl-C. `overflowed`: some were lost, list the path again."""
    from rollbox.files.paths import shown

    async def call(client: Client) -> None:
        files, place = await _opened(client, path)
        async with aclosing(files.watch(place, recursive=recursive, user=user)) as changes:
            async for change in changes:
                if json:
                    typer.echo(json_text.dumps(change.to_json()))
                elif change.change == "watching":
                    output.message(f"watching {shown(path)}")
                else:
                    typer.echo(_line(change))

    output.run(call, what=f"watching {path}", as_json=json, quiet=True)


def place(text: str) -> Remote | str:
    """Read the source or target of a copy: `ID:PATH` is in a sandbox; what has a slash before its first colon is local.

    Raises:
        InvalidArgument: there is no path after the colon.
    """
    sandbox_id, separator, path = text.partition(":")
    if not separator or "/" in sandbox_id or not sandbox_id:
        return text
    if not path:
        raise InvalidArgument(f"{text!r} has no path after the colon", hint=f"Write {sandbox_id}:/path.")
    return Remote(sandbox_id, path)


def remote(text: str) -> Remote:
    """Read `ID:PATH`.

    Raises:
        InvalidArgument: it has another form.
    """
    found = place(text)
    if not isinstance(found, Remote):
        hint = "Write the sandbox's id before it, as in sb-1:/etc; `rollbox ps` shows the ids."
        raise InvalidArgument(f"{text!r} is not of the form ID:PATH", hint=hint)
    return found


async def _opened(client: Client, text: str) -> tuple[Files, str]:
    found = remote(text)
    return (await client.connect(found.sandbox_id)).files, found.path


def _print(info: FileInfo, *, as_json: bool) -> None:
    if as_json:
        output.data(info.to_json())
    else:
        output.line(_long(info), indent="  ")


def _line(change: FileChange) -> str:
    from rollbox.files.paths import shown

    origin = "" if change.origin is None else f"{shown(change.origin)} -> "
    return f"{change.change} {origin}{shown(change.path)}".rstrip()


def _long(info: FileInfo) -> str:
    from rollbox.files.paths import shown

    mode = modes.filemode(_KINDS[info.kind] | info.mode)
    when = datetime.fromtimestamp(info.modified_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    link = "" if info.link_target is None else f" -> {shown(info.link_target)}"
    return f"{mode} {info.uid:>5} {info.gid:>5} {info.size_bytes:>12} {when} {shown(info.path)}{link}"
