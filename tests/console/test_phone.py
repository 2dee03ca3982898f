"""Every page on a telephone: nothing is wider than its screen, and no text is too small to be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Page, expect

from controlplane.cluster import Command
from tests.console.stage import Stage, Ui
from tests.console.test_browser import SOON_MS, logged_in, watched
from tests.support.world import OWNER

BUILD: Final = Path("build/console")
# Of a small telephone, a usual one, and a tablet.
WIDTHS: Final = (320, 390, 768)
# Between a telephone and a usual window, and just beyond.
BETWEEN: Final = (641, 700, 800, 901, 1000, 1050, 1051, 1280)
# What shows less than it has: it scrolls, or ends in an ellipsis.
CUT: Final = """() => [...document.querySelectorAll('.scroll, td, th')]
  .filter((one) => one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.tagName} ${one.scrollWidth} > ${one.clientWidth}: ${one.textContent.trim().slice(0, 40)}`)"""
LEAST_PX: Final = 11.0
# Text as it is seen: what is in a picture is scaled with it. Text of no size is not shown.
TEXTS: Final = """() => {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    const range = document.createRange();
    range.selectNodeContents(walk.currentNode);
    if (walk.currentNode.textContent.trim() === "" || range.getBoundingClientRect().height === 0) continue;
    const scale = one instanceof SVGGraphicsElement ? Math.abs(one.getScreenCTM().a) : 1;
    found.push([walk.currentNode.textContent.trim(), scale * parseFloat(getComputedStyle(one).fontSize)]);
  }
  return found;
}"""


@pytest.fixture(autouse=True)
def build() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)


async def _filled(stage: Stage) -> str:
    """A stage with all that a page may show; a sandbox with commands."""
    quota = {"sandboxes": 3, "memory_bytes": 2 << 40, "starting": 64}
    for owner in (OWNER, "another-owner-with-a-name-that-is-long"):
        assert (await stage.plane.api("PUT", f"/v1/quotas/{owner}", body=quota)).status == 200
    body = {"template": {"image": "python:3"}, "min_warm": 3, "max_warm": 12}
    assert (await stage.plane.api("PUT", "/v1/pools/python-with-a-long-name", body=body)).status == 201
    only, *_ = await stage.add(3, task="a-label-with-a-value-that-is-wider-than-a-telephone-" + "x" * 80)
    await stage.a_day_of_ends(only)
    long = "python -m pytest -x --timeout=600 " + "tests/test_with_a_long_name.py::" * 4
    stage.plane.sidecars.ran_there[await stage.address(only)] = [
        Command("e2", ["bash", "-c", long], 1, "", 0, 12_345, 0),
        Command("e1", ["pip", "install", "-e", "."], 1, "exited", 1, 10_000_000, 0),
    ]
    return only


async def _readable(page: Page, name: str) -> None:
    await page.screenshot(path=BUILD / f"phone-{name}.png", full_page=True)
    wide, seen = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= seen, f"{name} is wider than the window"
    texts: Any = await page.evaluate(TEXTS)
    assert texts, name
    assert [one for one in texts if one[1] < LEAST_PX] == [], name


async def test_text_is_readable_on_every_page_and_width(browser: Browser, stage: Stage, shown: Ui) -> None:
    only = await _filled(stage)
    page = (await logged_in(browser, shown)).page
    waiting = asyncio.create_task(stage.add(1, task="it-waits-for-" + "room" * 20))
    await expect(page.locator("#waiting")).to_contain_text("it-waits", timeout=SOON_MS)
    paths = {"overview": "", "ended": "?show=ended", "nothing": "?q=nothing", "sandbox": f"sandboxes/{only}"}
    refused = {"no-sandbox": "sandboxes/sb-none", "no-page": "?page=none"}
    for name, path in {**paths, **refused}.items():
        await page.goto(shown.home + path)
        if name in paths:
            await page.wait_for_load_state("networkidle")
        await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 844})
            await _readable(page, f"{name}-{width}")
    other = (await watched(await browser.new_context(viewport={"width": 320, "height": 844}))).page
    await other.goto(shown.address)
    await _readable(other, "login-used-320")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_no_column_is_cut_between_a_telephone_and_a_usual_window(
    browser: Browser, stage: Stage, shown: Ui
) -> None:
    only = await _filled(stage)
    page = (await logged_in(browser, shown)).page
    waiting = asyncio.create_task(stage.add(1, task="it-waits"))
    await expect(page.locator("#waiting")).to_contain_text("it-waits", timeout=SOON_MS)
    cut = {}
    for path in ("", "?show=ended", f"sandboxes/{only}"):
        await page.goto(shown.home + path)
        await page.wait_for_load_state("networkidle")
        await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        for width in BETWEEN:
            await page.set_viewport_size({"width": width, "height": 900})
            if found := await page.evaluate(CUT):
                cut[path, width] = found
    assert cut == {}
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_the_chart_of_ends_has_its_labels_beside_bars_that_stay_as_high(
    browser: Browser, stage: Stage, shown: Ui
) -> None:
    await _filled(stage)
    page = (await logged_in(browser, shown)).page
    heights = []
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 844})
        boxes = [await one.bounding_box() for one in await page.locator("#ends .chart").all()]
        assert all(box is not None and 0.8 * width < box["width"] <= width for box in boxes)
        heights.append([round(box["height"]) for box in boxes if box is not None])
    assert heights == [heights[0]] * len(WIDTHS)
    assert heights[0][0] > 100
    labels = await page.locator("#ends .axis span").all_text_contents()
    assert [one.lstrip("\N{MINUS SIGN}") for one in labels[1:]] == ["24 h", "12 h", "now"]
    await expect(page.locator("#ends .axis").first).to_contain_text("in 20 min")


async def test_processor_time_says_that_it_is_a_total_until_a_share_of_it_is_known(
    browser: Browser, stage: Stage, shown: Ui
) -> None:
    (only,) = await stage.add(1)
    page = (await logged_in(browser, shown)).page
    cpu = page.locator("td[data-of=cpu]")
    await expect(cpu).to_have_text("1.0 s in all", timeout=SOON_MS)
    await expect(cpu).to_have_text("0 %", timeout=SOON_MS)
    await page.goto(f"{shown.home}sandboxes/{only}")
    await expect(page.locator(".uses")).to_contain_text("cpu time 1.0 s in all", timeout=SOON_MS)
    await expect(page.locator(".uses")).to_contain_text("cpu 0 %", timeout=SOON_MS)
