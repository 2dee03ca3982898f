"""What cells show by other libraries; here modules that speak as these do, since the images of the tests have none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rollbox import Interpreter, Sandbox
from rollbox.interpreter.cell import Table

LIBRARIES = {
    "pandas.py": """
import json
class Index(list):
    names = [None]
class RangeIndex(Index): pass
class DataFrame:
    def __init__(self, columns, rows, index=None, names=None):
        self.columns, self.rows = columns, rows
        self.index = RangeIndex(range(len(rows))) if index is None else Index(index)
        self.index.names = names or [None]
    def __len__(self): return len(self.rows)
    def head(self, count):
        names = None if type(self.index) is RangeIndex else self.index.names
        return DataFrame(self.columns, self.rows[:count], None if names is None else self.index[:count], names)
    def to_json(self, orient, date_format, default_handler):
        assert (orient, date_format, default_handler) == ('split', 'iso', str)
        return json.dumps({'columns': self.columns, 'index': self.index, 'data': self.rows})
""",
    "polars.py": """
class DataFrame:
    def __init__(self, columns, rows): self.columns, self._rows = columns, rows
    def __len__(self): return len(self._rows)
    def head(self, count): return DataFrame(self.columns, self._rows[:count])
    def rows(self): return [tuple(row) for row in self._rows]
    def _repr_html_(self): return '<table>'
""",
    "IPython/__init__.py": "",
    "IPython/core/__init__.py": "",
    "IPython/core/display_functions.py": """
def display(*objects, **how): print('not patched')
publish_display_data = clear_output = display
def update_display(one, *, display_id, **how): display(one, display_id=display_id, update=True, **how)
""",
    "IPython/display.py": "from IPython.core.display_functions import *\n",
    "matplotlib/__init__.py": "backend = 'screen'\ndef use(name):\n    global backend\n    backend = name\n",
    "matplotlib/figure.py": """
class Figure:
    number = 0
    def savefig(self, file, format, bbox_inches): file.write(b'%s %d' % (format.encode(), self.number))
""",
    "matplotlib/_pylab_helpers.py": """
class Gcf:
    figs = []
    @classmethod
    def get_all_fig_managers(cls): return list(cls.figs)
    @classmethod
    def destroy_all(cls): cls.figs.clear()
""",
    "matplotlib/pyplot.py": """
from types import SimpleNamespace
from matplotlib._pylab_helpers import Gcf
from matplotlib.figure import Figure
def figure(number):
    made = Figure()
    made.number = number
    Gcf.figs.append(SimpleNamespace(canvas=SimpleNamespace(figure=made)))
    return made
def show(): raise RuntimeError('no screen')
""",
}


@pytest.fixture
async def python(shared: Sandbox) -> AsyncIterator[Interpreter]:
    folder = (await shared.exec("mktemp -d", check=True)).stdout.strip()
    for path, source in LIBRARIES.items():
        await shared.files.write(f"{folder}/{path}", source.encode())
    async with await shared.interpreter(env={"PYTHONPATH": folder}) as made:
        yield made


TABLES = [
    ("polars.DataFrame(['a', 'b'], [[1, 'x'], [2, None]])", Table(["a", "b"], [[1, "x"], [2, None]], 2)),
    ("polars.DataFrame(['d'], [[datetime.date(2026, 1, 2)]])", Table(["d"], [["2026-01-02"]], 1)),
    ("polars.DataFrame(['n'], [[n] for n in range(2500)])", Table(["n"], [[n] for n in range(1000)], 2500)),
    ("pandas.DataFrame(['a'], [[1.5], [None]])", Table(["a"], [[1.5], [None]], 2)),
    ("pandas.DataFrame(['v'], [[3]], ['k'], ['key'])", Table(["key", "v"], [["k", 3]], 1)),
    ("pandas.DataFrame(['v'], [[3]], ['k'])", Table(["index", "v"], [["k", 3]], 1)),
    (
        "pandas.DataFrame(['v'], [[3]], [['k', 1]], ['key', None])",
        Table(["key", "level_1", "v"], [["k", 1, 3]], 1),
    ),
    ("pandas.DataFrame([], [])", Table([], [], 0)),
]


async def test_data_frames_are_tables(python: Interpreter) -> None:
    await python.run("import datetime, pandas, polars")
    for code, right in TABLES:
        cell = await python.run(code)
        assert (cell.results[0].table, cell.stderr) == (right, ""), code
    assert cell.text
    assert "DataFrame" in cell.text
    broken = await python.run("polars.DataFrame.head = None\npolars.DataFrame(['a'], [])")
    assert (broken.results[0].table, broken.results[0].html) == (None, "<table>")
    assert "a form of the result failed" in broken.stderr


SHOWN = [
    ("display(1, 'x')", ["1", "'x'"]),
    ("handle = display(1, display_id='k'); handle.update(2); handle.display_id", ["1", "2", "'k'"]),
    ("isinstance(display(1, display_id=True).display_id, str)", ["1", "True"]),
    ("from IPython.display import update_display; update_display(3, display_id='k')", ["3"]),
    ("display(polars.DataFrame([], []), include=['text/html'], metadata={})", [None]),
    ("display({'text/plain': 'raw'}, raw=True, transient={})", ["raw"]),
    ("from IPython.display import publish_display_data as publish; publish({'text/plain': 'p'}, {})", ["p"]),
    ("from IPython.display import clear_output; clear_output(wait=True)", []),
]


async def test_what_ipython_displays(python: Interpreter) -> None:
    await python.run("import polars\nfrom IPython.display import display")
    for code, right in SHOWN:
        cell = await python.run(code)
        assert ([one.text for one in cell.results], cell.stdout, cell.error) == (right, "", None), code


async def test_figures_are_shown_once(python: Interpreter) -> None:
    cells = [
        ("import matplotlib.pyplot as plt; matplotlib.backend", [b"'agg'"]),
        ("plt.figure(1), plt.figure(2);", [b"png 1", b"png 2"]),
        ("plt.figure(3); plt.show(); 'after'", [b"png 3", b"'after'"]),
        ("kept = plt.figure(4); display(kept)", [b"png 4"]),
        ("kept", [b"png 4"]),
    ]
    await python.run("import matplotlib")
    for code, right in cells:
        cell = await python.run(code)
        assert ([one.png or (one.text or "").encode() for one in cell.results], cell.error) == (right, None), code
