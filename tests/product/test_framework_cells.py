"""Cells that show by the real pandas and IPython, of the frameworks' image."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rollbox import Sandbox
from rollbox.interpreter.cell import Table
from tests.support.images import frameworks_image
from tests.support.product import Kept, keeping
from tests.support.stack import Product

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def kept(stack: Product) -> Iterator[Kept]:
    yield from keeping(stack, image=frameworks_image(), memory="2Gi")


TABLES = [
    ("frame", Table(["k", "v"], [["a", 1.0], ["a", None], ["b", 3.5]], 3)),
    ("frame.groupby('k').sum()", Table(["k", "v"], [["a", 1.0], ["b", 3.5]], 2)),
    ("frame.set_index(['k', 'v'])[[]]", Table(["k", "v"], [["a", 1.0], ["a", None], ["b", 3.5]], 3)),
    ("frame.groupby('k').agg(['min'])", Table(["k", ["v", "min"]], [["a", 1.0], ["b", 3.5]], 2)),
    ("pd.DataFrame({'n': range(3000)}).head(1001)", Table(["n"], [[n] for n in range(1000)], 1001)),
    ("pd.DataFrame({'t': pd.to_datetime(['2026-01-02'])})", Table(["t"], [["2026-01-02T00:00:00.000"]], 1)),
    ("pd.DataFrame()", Table([], [], 0)),
]


async def test_frames_of_pandas_are_tables_and_html(shared: Sandbox) -> None:
    async with await shared.interpreter() as python:
        await python.run("import pandas as pd\nframe = pd.DataFrame({'k': list('aab'), 'v': [1, None, 3.5]})")
        for code, right in TABLES:
            cell = await python.run(code)
            assert (cell.results[0].table, cell.error, cell.stderr) == (right, None, ""), code
            assert "<table" in str(cell.results[0].html)
            assert cell.text
        assert (await python.run("frame['k']")).results[0].table is None


async def test_ipython_displays(shared: Sandbox) -> None:
    async with await shared.interpreter() as python:
        await python.run("from IPython.display import *")
        cell = await python.run(
            "display(HTML('<b>1</b>'), Markdown('**2**')); display_html('<p>', raw=True); JSON({'a': 3})"
        )
        html, markdown, raw, value = cell.results
        assert (html.html, markdown.markdown, raw.forms, value.json) == (
            "<b>1</b>",
            "**2**",
            {"text/html": b"<p>"},
            {"a": 3},
        )
        again = await python.run(
            "h = display('x', display_id=True); h.update('y'); update_display('z', display_id='k')"
        )
        assert [one.text for one in again.results] == ["'x'", "'y'", "'z'"]
        quiet = await python.run("clear_output()\npublish_display_data({'text/plain': 'p'})")
        assert ([one.text for one in quiet.results], quiet.stdout, quiet.error) == (["p"], "", None)
