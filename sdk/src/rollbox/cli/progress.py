"""Progress bars on stderr, for people: whatever the width of the terminal, names and counts are there whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

Count: TypeAlias = Literal["bytes", "speed", "items", "elapsed"]
# Below it there is no room for a bar beside a name and its counts.
_WIDE: Final = 80


@contextmanager
def bars(*counts: Count) -> Iterator[Progress | None]:
    """Show bars for as long as the block runs, then take them off; None where stderr is no terminal.

    Args:
        counts: what each shows beside its name.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with made(console, *counts) as progress:
        yield progress


def made(console: Console, *counts: Count) -> Progress:
    """Make bars for a terminal of this width."""
    from rich import progress
    from rich.table import Column

    kinds: dict[Count, type[ProgressColumn]] = {
        "bytes": progress.DownloadColumn,
        "speed": progress.TransferSpeedColumn,
        "items": progress.MofNCompleteColumn,
        "elapsed": progress.TimeElapsedColumn,
    }
    # A long name goes on in a further line; what counts stays in one.
    name = progress.TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
    bar = [progress.BarColumn(table_column=Column(no_wrap=True))] if console.width >= _WIDE else []
    told = [kinds[count](table_column=Column(no_wrap=True)) for count in counts]
    return progress.Progress(name, *bar, *told, console=console, transient=True)
