"""The pages in a real browser: none is wider than a phone, none fails, none asks another server for anything."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.support.chromium import chromium, why_no_chromium

SITE = ROOT / "build/docs"
# Each kind of page: prose, wide tables, code, diagrams, generated ones, files of the repository.
PAGES = (
    "index",
    "tutorial",
    "glossary",
    "guide/files",
    "cli",
    "operating/sizing",
    "operating/troubleshoot",
    "reference/sdk",
    "reference/http",
    "reference/values",
    "metrics",
    "faults",
    "how/create",
    "inside/images",
    "decisions/index",
    "figures",
    "scale",
    "images",
    "node-agent",
    "source/ARCHITECTURE",
    "source/helm/values.yaml",
)
WIDTHS = (390, 1280)
PICTURES = ROOT / "build/docs-pictures"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the site is served."""
    assert SITE.exists(), "make docs builds it"
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.skipif(why_no_chromium() is not None, reason=str(why_no_chromium()))
@pytest.mark.timeout(900)
async def test_pages_fit_a_phone_and_ask_nobody_else(address: str) -> None:
    wrong: list[str] = []
    PICTURES.mkdir(parents=True, exist_ok=True)
    async with chromium() as browser:
        for width in WIDTHS:
            page = await browser.new_page(viewport={"width": width, "height": 900})
            page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(address) else None)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            for name in PAGES:
                await page.goto(f"{address}/{name}.html", wait_until="networkidle")
                wide = await page.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    wrong.append(f"{name} is {wide} wide at {width}")
                picture = PICTURES / f"{name.replace('/', '-')}-{width}.png"
                await asyncio.to_thread(Path.write_bytes, picture, await page.screenshot())
            await page.close()
    assert wrong == []
