"""The pages in a real browser: none is wider than a phone, none fails, none asks another server for anything."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

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


# How often lighter one colour is than the other, as WCAG reckons it; of the first visible element of each kind.
CONTRASTS = """
(kinds) => {
  const light = (colour) => {
    const share = colour.map((one) => one / 255);
    const [r, g, b] = share.map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const over = (below, above) => {
    canvas.fillStyle = below; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = above; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const ground = getComputedStyle(document.body).backgroundColor;
  const told = { ground: light(over(ground, ground)) };
  for (const [kind, property] of Object.entries(kinds)) {
    const one = document.querySelector(`article ${kind}`);
    if (!one) continue;
    const both = [light(over(ground, getComputedStyle(one)[property])), told.ground];
    told[kind] = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
  }
  return told;
}
"""
# What is read, and what only has to stand out: WCAG's bounds for text and for graphics.
READ, SEEN = 4.5, 3.0
KINDS = {"p": "color", "h1": "color", "h2": "color", "p a": "color", "td": "color", ".plot text": "fill"}
KINDS |= {".sequence text": "fill", ".plot .bar": "fill", ".sequence .head": "stroke"}


@pytest.mark.skipif(why_no_chromium() is not None, reason=str(why_no_chromium()))
@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_pages_are_legible_in_the_dark_too(address: str, scheme: Literal["dark", "light"]) -> None:
    wrong: list[str] = []
    async with chromium() as browser:
        context = await browser.new_context(viewport={"width": 390, "height": 900}, color_scheme=scheme)
        page = await context.new_page()
        for name in ("index", "how/create", "figures", "inside/replicas"):
            await page.goto(f"{address}/{name}.html", wait_until="networkidle")
            told = await page.evaluate(CONTRASTS, KINDS)
            if (told.pop("ground") < 0.1) is not (scheme == "dark"):
                wrong.append(f"{name} is not {scheme}")
            wrong += [
                f"{name}: {kind} is {found:.1f} from the ground"
                for kind, found in told.items()
                if found < (READ if KINDS[kind] == "color" or kind.endswith("text") else SEEN)
            ]
            picture = PICTURES / f"{name.replace('/', '-')}-{scheme}.png"
            await asyncio.to_thread(Path.write_bytes, picture, await page.screenshot())
        await context.close()
    assert wrong == []
