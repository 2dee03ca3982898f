"""Data analysis: cells that build on one another, a table as data and a plot as a PNG.

It needs an image whose python3 has matplotlib: `python analysis.py IMAGE [PNG]`.
"""

import asyncio
import sys
from pathlib import Path

from rollbox import Interpreter, Sandbox

LOAD = """
import csv, io, statistics
rows = [(int(hour), float(load)) for hour, load in csv.reader(io.StringIO(open('load.csv').read()))]
print(len(rows), 'rows')
"""
PEAK = "max(rows, key=lambda row: row[1])"
PLOT = """
import matplotlib.pyplot as plt
plt.plot(*zip(*rows))
plt.axhline(statistics.mean(load for _, load in rows), linestyle='--')
plt.xlabel('hour'); plt.ylabel('load');
"""


async def analysed(python: Interpreter, png: Path) -> None:
    """Run one cell after the other, and save the plot."""
    for code in (LOAD, PEAK, PLOT):
        cell = await python.run(code, timeout=60)
        if cell.error is not None:
            print(cell.error.traceback, end="", file=sys.stderr)
            sys.exit("the image's python3 has no matplotlib" if "matplotlib" in cell.error.value else 1)
        print(cell.stdout, end="")
        if cell.text is not None:
            print(cell.text)
        for result in cell.results:
            if result.png:
                await asyncio.to_thread(png.write_bytes, result.png)
                print("plot:", len(result.png) > 1000)


async def main(image: str, png: Path) -> None:
    """Upload data and analyse it."""
    async with await Sandbox.create(image, memory="512Mi", ttl=600) as sandbox:
        folder = (await sandbox.exec("mktemp -d", check=True)).stdout.strip()
        data = "".join(f"{hour},{100 + (hour - 14) ** 2 * -0.5}\n" for hour in range(24))
        await sandbox.files.write(f"{folder}/load.csv", data)
        async with await sandbox.interpreter(cwd=folder) as python:
            await analysed(python, png)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "plot.png")))
