"""`rollbox bench`: measures an installation."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.options import Json, ResourceArguments, time_option, with_resources
from rollbox.cli.progress import bars
from rollbox.errors import InvalidArgument
from rollbox.printable import printable_lines

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from rollbox.bench.measured import BenchReport
    from rollbox.client import Client

_COLUMNS = ("scenario", "sandboxes", "creates", "commands", "what")


@with_resources
def bench(
    image: Annotated[
        str | None, typer.Argument(help="Of the sandboxes: any that has `true`, `cat` and `head`.")
    ] = None,
    *,
    scenario: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this one; may be repeated. --list has the names.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the scenarios, and create nothing.")] = False,
    sandboxes: Annotated[int, typer.Option(min=1, max=1000, help="Most sandboxes at the same time.")] = 300,
    seconds: Annotated[
        float, time_option("Most time for the calls of a scenario: seconds, or 2m.", least_s=1, most_s=600)
    ] = 60,
    kubeconfig: Annotated[
        Path | None, typer.Option(envvar="KUBECONFIG", help="Compare commands with kubectl exec, with this file.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as a page with plots, too.")
    ] = None,
    resources: ResourceArguments,
    json: Json = False,
) -> None:
    """Measure an installation: creates by arrival shape, commands, output and files. It says first what it will create,
    keeps to your quota, and deletes all of it at its end.
    """
    from rollbox.bench.scenarios import scenarios

    if list_:
        known = {
            name: (one.sandboxes, one.creates, one.commands, one.says) for name, one in scenarios(sandboxes).items()
        }
        if json:
            output.data([dict(zip(_COLUMNS, (name, *told), strict=True)) for name, told in known.items()])
        else:
            output.table(_COLUMNS, [(name, *map(str, told)) for name, told in known.items()], told=True)
        return
    if image is None:
        output.fail(InvalidArgument("name an image: `rollbox bench IMAGE`, or `rollbox bench --list`"), as_json=json)
    if html is not None:
        _writable(html, as_json=json)

    async def call(client: Client) -> BenchReport:
        from rollbox.bench.kubectl import Kubectl
        from rollbox.bench.session import Wish
        from rollbox.bench.session import bench as measure

        repeat = shlex.join(["rollbox", *sys.argv[1:]])
        compare = None if kubeconfig is None else Kubectl(kubeconfig)
        wish = Wish(image, resources.options(), scenario or (), sandboxes, seconds, compare, repeat)
        with _shown() as told:
            return await measure(client, wish, told)

    report = output.run(call, what="measuring; what it has created is deleted", as_json=json, quiet=True)
    _print(report, html, as_json=json)
    if report.fault:
        raise typer.Exit(output.EXIT_BY_FAULT[report.fault])


def _writable(html: Path, *, as_json: bool) -> None:
    """Find out before the minutes of measuring whether the report can be written."""
    try:
        there = html.exists()
        # Not touch: what is there keeps its time. A link to nothing stays, and so does what is no file.
        if not there or html.is_file():
            with html.open("ab"):
                pass
        if not there:
            html.resolve().unlink()
    except OSError as error:
        output.fail(InvalidArgument(f"{html} cannot be written: {error.strerror}"), as_json=as_json)


def _print(report: BenchReport, html: Path | None, *, as_json: bool) -> None:
    from rollbox.bench.page import page
    from rollbox.bench.text import text

    # First, so that nothing is lost where the page cannot be written any more.
    if as_json:
        output.data(report.to_json())
    else:
        typer.echo(text(report), nl=False)
    if html is not None:
        output.written_file(html, page(report), as_json=as_json)


class _Shown:
    """Tells on stderr: lines, and a bar on a terminal."""

    def __init__(self, bars: Progress | None) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def begin(self, what: str, total: int) -> None:
        if self._bars is None:
            output.message(f"{what} ({total})")
            return
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(what, total=total)

    def step(self) -> None:
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task)

    def say(self, text: str) -> None:
        if self._bars is None:
            output.message(text)
        else:
            # Above the bar, which is drawn again.
            self._bars.console.print(printable_lines(text), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _shown() -> Iterator[_Shown]:
    with bars("items", "elapsed") as shown_by:
        yield _Shown(shown_by)
