"""Progress bars on terminals of any width: names and counts are there whole, and no line is too long."""

from io import StringIO

import pytest
from rich.console import Console

from rollbox.cli.progress import Count, made

IMAGE = "registry.example.com:5000/team/app:2026-11-29"


def drawn(width: int, name: str, *counts: Count, done: int = 1_500_000, total: int = 3_000_000) -> list[str]:
    console = Console(file=StringIO(), force_terminal=True, width=width, color_system=None, legacy_windows=False)
    progress = made(console, *counts)
    progress.update(progress.add_task(name, total=total), completed=done)
    with console.capture() as captured:
        console.print(progress.get_renderable())
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [120, 80, 60, 40])
@pytest.mark.parametrize("name", ["hosts", f"{IMAGE} node-1.example", "a name with [markup] and many words in it"])
def test_a_bar_cuts_neither_the_name_nor_what_it_counts(width: int, name: str) -> None:
    lines = drawn(width, name, "bytes", "speed")
    assert all(len(line) <= width for line in lines)
    assert lines[0].rstrip().endswith(" 1.5/3.0 MB ?")
    lines[0] = lines[0].replace(" 1.5/3.0 MB ?", "").replace("━", "")
    assert "".join("".join(lines).split()) == name.replace(" ", "")


@pytest.mark.parametrize(("width", "bar"), [(120, True), (80, True), (79, False), (40, False)])
def test_a_narrow_terminal_has_counts_in_place_of_a_bar(width: int, bar: bool) -> None:
    (line,) = drawn(width, "exec", "items", "elapsed", done=3, total=20)
    assert " 3/20" in line
    assert ("━" in line) is bar
