"""Figures of the real matplotlib, and the example that saves one; with plain processes instead of sandboxes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client, Interpreter
from tests.support.gateway_fake import FakeGateway

EXAMPLES = Path(__file__).parents[3] / "sdk" / "examples"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
async def python(client: Client, fake: FakeGateway, tmp_path: Path) -> AsyncIterator[Interpreter]:
    """An interpreter of the Python that runs the tests, which has matplotlib."""
    fake.real_execs = True
    sandbox = await client.create("python")
    env = {"PATH": str(Path(sys.executable).parent), "MPLCONFIGDIR": str(tmp_path), "HOME": str(tmp_path)}
    async with await sandbox.interpreter(cwd=str(tmp_path), env=env) as made:
        yield made


async def shown(python: Interpreter, code: str) -> list[bool | str | None]:
    """What a cell shows: whether a PNG, else the text."""
    cell = await python.run(code, timeout=60)
    assert (cell.error, cell.stderr) == (None, ""), cell
    return [one.png.startswith(PNG) if one.png else one.text for one in cell.results]


async def test_figures_are_shown_once(python: Interpreter) -> None:
    assert await shown(python, "import matplotlib, matplotlib.pyplot as plt\nmatplotlib.get_backend()") == ["'agg'"]
    assert await shown(python, "plt.plot([1, 2]);") == [True]
    assert await shown(python, "fig, _ = plt.subplots(); plt.show(); 'after'") == [True, "'after'"]
    assert await shown(python, "fig") == [True]
    assert await shown(python, "one = plt.figure(); display(one)") == [True]
    assert await shown(python, "plt.figure(); plt.figure();") == [True, True]
    assert await shown(python, "one = plt.figure(); plt.close(one)") == []
    assert await shown(python, "len(plt.get_fignums())") == ["0"]
    cell = await python.run("plt.plot([1, 2]); 1 / 0")
    assert (cell.error and cell.error.name, cell.results) == ("ZeroDivisionError", ())
    # It is still open.
    assert await shown(python, "1") == ["1", True]


async def test_the_example_saves_its_plot(
    python: Interpreter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example: Any = importlib.import_module("analysis")
    (tmp_path / "load.csv").write_text("0,1.5\n1,2.5\n")
    png = tmp_path / "plot.png"
    await example.analysed(python, png)
    assert capsys.readouterr().out == "2 rows\n(1, 2.5)\nplot: True\n"
    assert png.read_bytes().startswith(PNG)
