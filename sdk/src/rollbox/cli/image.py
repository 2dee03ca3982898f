"""`rollbox image` and `rollbox commit`."""

from __future__ import annotations

import json as encoder
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import build, output
from rollbox.cli.options import Json, time_option
from rollbox.cli.progress import bars
from rollbox.cli.sandboxes import span

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from rollbox.client import Client
    from rollbox.conversion import ConvertOptions
    from rollbox.git_scrub import ScrubReport
    from rollbox.image import (
        Checkpoint,
        Commit,
        CommittedImage,
        ConversionProgress,
        NodeImage,
        PrefetchProgress,
        PrefetchReport,
    )

app = typer.Typer(
    help="Which images the nodes have, and images that are pulled before they are needed.", no_args_is_help=True
)

app.add_typer(build.app)
_COLUMNS = ("node", "image", "digest", "size", "pulled", "last used")
_OWN = ("image", "tags", "size", "expires in")
_SHORT_DIGEST = len("sha256:") + 12


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List the images on the nodes: where each is, its size, whether it is pulled lazily, when it was used last."""
    found = output.run(lambda client: client.images(), what="listing images", as_json=json)
    if json:
        output.data([one.to_json() for one in found])
    else:
        output.table(_COLUMNS, [row for one in found for row in _rows(one)])


@app.command()
def prefetch(
    images: Annotated[
        list[str],
        typer.Argument(metavar="IMAGE...", help="Names of images; @FILE: those of a manifest of `image build`."),
    ],
    *,
    nodes: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="On how many nodes each is to be; creates prefer these (all)."),
    ] = None,
    json: Json = False,
) -> None:
    """Pull images to the nodes; with --json a line for each step. When all are done, a failure is the exit code."""

    async def call(client: Client) -> PrefetchReport:
        pulling = client.prefetch(_named(images), nodes=nodes)
        with _bars() as bars:
            async for progress in pulling:
                if json:
                    typer.echo(encoder.dumps(progress.to_json()))
                else:
                    bars.show(progress)
        return pulling.report

    report = output.run(call, what="pulling images", as_json=json, quiet=True)
    if not json:
        for image, there in report.here.items():
            output.line(f"{image}  here on {', '.join(sorted(there))}")
        for (image, node), error in report.failed.items():
            output.message(f"{image}  failed{f' on {node}' if node else ''}: {error.code}: {error.detail}")
    for error in report.failed.values():
        output.fail(error, as_json=json)


def _named(images: Iterable[str]) -> list[str]:
    from rollbox import task_images

    return [name for one in images for name in (task_images.images_of(Path(one[1:])) if one.startswith("@") else [one])]


@app.command()
def commits(*, json: Json = False) -> None:
    """List your images that were made of sandboxes, what they take, and what they may."""
    found = output.run(lambda client: client.commits(), what="listing images", as_json=json)
    if json:
        output.data(found.to_json())
        return
    output.table(_OWN, [_own(one) for one in found.images])
    limit = "" if found.limit_bytes is None else f" of {_size(found.limit_bytes)}"
    output.message(f"{_size(found.used_bytes)}{limit} used")


@app.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME[:TAG][@DIGEST]", help="One of your images, or checkpoints.")],
    *,
    json: Json = False,
) -> None:
    """Remove an image that was made of a sandbox, with all its names, unless something needs it."""
    removed = output.run(lambda client: client.remove_image(name), what=f"removing {name}", as_json=json)
    if json:
        output.data({"name": name, "removed": removed})
    elif removed:
        typer.echo(name)
    else:
        output.message(f"there was no image {name}")


@app.command()
def convert(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Name of an image, as for `create`.")],
    *,
    first: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its lines are paths of files that come first, for your starts alone."),
    ] = None,
    record: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Run it in a sandbox; what it opens comes first, for your starts alone."),
    ] = None,
    record_timeout: Annotated[float, time_option("How long COMMAND may run.")] = 600,
    json: Json = False,
) -> None:
    """Convert an image, so that nodes mount it while they fetch it; with --json a line for each step."""
    options = _what_comes_first(first, record, record_timeout)

    async def call(client: Client) -> ConversionProgress:
        from rollbox.image import ConversionProgress

        last = ConversionProgress("copying")
        async for last in client.convert(image, **options):
            if json:
                typer.echo(encoder.dumps(last.to_json()))
            elif last.text:
                output.message(f"{last.state}: {last.text}")
        return last

    done = output.run(call, what=f"converting {image}", as_json=json, quiet=True)
    if not json:
        if done.run_failed:
            output.message(f"the command failed: {done.run_failed}; what it opened comes first all the same")
        if record is not None:
            more = ", and more, which do not" if done.more else ""
            output.message(f"{done.files} files that the command opened come first{more}")
        output.line(f"{image}  {done.digest}  runs as {done.ran}")


def _what_comes_first(first: Path | None, record: str | None, timeout: float) -> ConvertOptions:
    if first is not None and record is not None:
        raise typer.BadParameter("it excludes --first", param_hint="--record")
    if record is not None:
        return {"record": record, "record_timeout": timeout}
    return {} if first is None else {"first": _paths(first)}


def _paths(file: Path) -> Sequence[str]:
    try:
        found = [one for one in file.read_text().splitlines() if one]
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}", param_hint="--first") from error
    if not found:
        raise typer.BadParameter(f"{file} names no file", param_hint="--first")
    return found


@app.command(name="scrub-git")
def scrub_git(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="A sandbox that runs.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Working tree of a repository in it.")],
    *,
    at: Annotated[str, typer.Option(metavar="COMMIT", help="The commit to keep, with its ancestors.")] = "HEAD",
    user: Annotated[str | None, typer.Option(help="Who does it in the sandbox (the repository's owner).")] = None,
    remove_alternates: Annotated[
        bool, typer.Option("--remove-alternates", help="Also remove folders of objects elsewhere that it borrows from.")
    ] = False,
    timeout: Annotated[float, time_option("How long it may take.")] = 300,
    json: Json = False,
) -> None:
    """Remove from a Git repository all but one commit and its ancestors, for good, and prove it object by object."""

    async def call(client: Client) -> ScrubReport:
        sandbox = await client.connect(sandbox_id)
        return await sandbox.scrub_git(path, at=at, user=user, remove_alternates=remove_alternates, timeout=timeout)

    report = output.run(call, what=f"scrubbing {path}", as_json=json)
    if json:
        output.data(report.to_json())
        return
    for one in (report, *report.submodules):
        output.line(f"{one.path}  {one.commit}  {one.objects} objects")


_MaxBytes = Annotated[str | None, typer.Option(metavar="SIZE", help="Most that was changed: 2Gi (4Gi).")]
_Timeout = Annotated[float, time_option("How long it may take.")]
_Scrubbed = Annotated[
    list[str] | None,
    typer.Option("--scrub-git", metavar="PATH[=COMMIT]", help="Repository to scrub before (HEAD); may be repeated."),
]


def commit(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="A sandbox that runs.")],
    name: Annotated[str, typer.Argument(metavar="NAME[:TAG]", help="Name of the image among your own.")],
    *,
    max_bytes: _MaxBytes = None,
    scrub_git: _Scrubbed = None,
    timeout: _Timeout = 120,
    json: Json = False,
) -> None:
    """Make an image of a sandbox: its files on top of its own image; prints the name that creates take."""

    async def call(client: Client) -> CommittedImage:
        sandbox = await client.connect(sandbox_id)
        scrubbed = _places(scrub_git or ())
        return await sandbox.commit(name, max_bytes=max_bytes, scrub_git=scrubbed, timeout=timeout)

    made = output.run(call, what=f"committing {sandbox_id}", as_json=json)
    _told(made, str(made), as_json=json)


def checkpoint(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="A sandbox that runs.")],
    *,
    ttl: Annotated[float | None, time_option("How long it lasts, 7 days at most (24 h).")] = None,
    max_bytes: _MaxBytes = None,
    scrub_git: _Scrubbed = None,
    timeout: _Timeout = 120,
    json: Json = False,
) -> None:
    """Make a checkpoint of a sandbox: an image that ends by itself; prints the id that `create --checkpoint` takes."""

    async def call(client: Client) -> Checkpoint:
        sandbox = await client.connect(sandbox_id)
        scrubbed = _places(scrub_git or ())
        return await sandbox.commit(checkpoint=True, ttl=ttl, max_bytes=max_bytes, scrub_git=scrubbed, timeout=timeout)

    made = output.run(call, what=f"making a checkpoint of {sandbox_id}", as_json=json)
    removing = partial(output.run, lambda client: client.remove_image(made.id), what="removing it again", as_json=json)
    _told(made, made.id, as_json=json, undo=removing)


def _places(given: Iterable[str]) -> dict[str, str]:
    return {path: at or "HEAD" for path, _, at in (one.partition("=") for one in given)}


def _told(made: CommittedImage, name: str, *, as_json: bool, undo: Callable[[], object] | None = None) -> None:
    told = encoder.dumps(made.to_json(), indent=2) if as_json else name
    output.made(told, f"{name} was made, and its name could not be printed", undo)
    if as_json:
        return
    for one in made.skipped:
        output.message(f"skipped: {one}")


def _own(image: Commit) -> tuple[str, ...]:
    left = "-" if image.expires_at_ms is None else span(image.expires_at_ms / 1000 - time.time())
    return (image.image, ", ".join(image.tags) or "-", _size(image.size_bytes), left)


def _rows(image: NodeImage) -> Iterator[tuple[str, ...]]:
    pulled = {None: "-", True: "lazy", False: "full"}[image.lazy]
    used = "-" if image.last_used_ms is None else f"{max(0.0, time.time() - image.last_used_ms / 1000):.0f} s ago"
    size = _size(image.size_bytes)
    for name in image.names or ("-",):
        yield (image.node, name, image.digest[:_SHORT_DIGEST] or "-", size, pulled, used)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"


class _Bars:
    """A bar for each image on each node, or nothing when stderr is not a terminal."""

    def __init__(self, shown_by: Progress | None) -> None:
        self._progress = shown_by
        self._tasks: dict[tuple[str, str], TaskID] = {}

    def show(self, progress: PrefetchProgress) -> None:
        if self._progress is None or not progress.node:
            return
        at = (progress.image, progress.node)
        if at not in self._tasks:
            self._tasks[at] = self._progress.add_task(f"{progress.image} {progress.node}", total=None)
        done, total = progress.done_bytes, progress.total_bytes
        if progress.state == "here":
            done = total = max(total or 1, 1)
        self._progress.update(self._tasks[at], completed=done, total=total)


@contextmanager
def _bars() -> Iterator[_Bars]:
    with bars("bytes") as shown_by:
        yield _Bars(shown_by)
