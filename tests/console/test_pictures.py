"""Pictures of the pages, wide and narrow, light and dark, with 5,000 sandboxes; to be looked at in build/console.

What the first paint took, and how long the control plane's loop stood still meanwhile, is written beside them.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, Page

from controlplane.cluster import Command
from controlplane.model import State
from tests.console.stage import Stage, Ui, staged, ui
from tests.support.waiting import until
from tests.support.world import OWNER

BUILD = Path("build/console")
COUNT = int(os.environ.get("ROLLBOX_TEST_CONSOLE", "5000"))
LOOKS = 9
REST_S = 5
SIZES = {"wide": (1280, 960), "narrow": (390, 844)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


@pytest.fixture(autouse=True)
def build() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)


async def test_pages_of_5000_sandboxes_fit_and_are_measured(browser: Browser) -> None:
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp") as folder:
        async with staged(Path(folder), redis=True) as stage, ui(stage.url) as shown:
            one = await _filled(stage)
            context = await browser.new_context()
            page = await context.new_page()
            await page.goto(shown.address)
            await page.wait_for_url(shown.home)
            measured = {**await _measured(page, shown), **await _served(stage)}
            (BUILD / "measured.json").write_text(json.dumps(measured, indent=2))
            print(json.dumps(measured))
            assert measured["requests_for_a_page"] <= 5
            cookies: Any = await context.cookies()
            for name, (width, height) in SIZES.items():
                for scheme in SCHEMES:
                    options = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
                    looked = await browser.new_context(**options)  # type: ignore[arg-type]
                    await looked.add_cookies(cookies)
                    await _drawn(await looked.new_page(), shown, one, f"{name}-{scheme}")
                    await looked.close()


async def _filled(stage: Stage) -> str:
    """Fills the stage; the sandbox that is looked at."""
    api = stage.plane.api
    await api("PUT", f"/v1/quotas/{OWNER}", body={"sandboxes": 2 * COUNT, "memory_bytes": 2 << 40, "starting": 64})
    for name, least in (("python", 3), ("django", 5)):
        body = {"template": {"image": f"{name}:3"}, "min_warm": least, "max_warm": 12}
        assert (await api("PUT", f"/v1/pools/{name}", body=body)).status == 201
    ids = await stage.add(COUNT)
    newest = (await stage.plane.service.console_views.find(OWNER, {State.RUNNING}, (), 0, 1)).page.sandboxes[0].id
    await stage.a_day_of_ends(newest)
    now_ms = stage.plane.deps.clock.now_ms()
    stage.plane.sidecars.ran_there[await stage.address(newest)] = [
        Command("e3", ["bash", "-c", "pytest -x tests/ 2>&1 | tail -50"], now_ms - 4_000, "", 0, 12_345, 0),
        Command("e2", ["bash", "-c", "git apply /tmp/patch.diff"], now_ms - 61_000, "exited", 1, 10, 999),
        Command("e1", ["pip", "install", "-e", "."], now_ms - 95_000, "exited", 0, 10_000_000, 0),
    ]
    for ended in ids[:20]:
        await stage.plane.service.delete(OWNER, ended)
    return newest


async def _measured(page: Page, shown: Ui) -> dict[str, float]:
    """What a look takes: each figure the median of nine, in ms."""
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    painted, answered = list[float](), list[float]()
    async with _standing_still() as pauses:
        for _ in range(LOOKS):
            requests.clear()
            await page.goto(shown.home)
            await page.wait_for_load_state("networkidle")
            painted.append(await _painted_ms(page))
            timing = "performance.getEntriesByType('navigation')[0]"
            answered.append(float(await page.evaluate(f"{timing}.responseEnd - {timing}.requestStart")))
        looked = len(requests)
    return {
        "sandboxes": COUNT,
        "first_paint_ms": round(statistics.median(painted), 1),
        "first_paint_max_ms": round(max(painted), 1),
        "page_answered_ms": round(statistics.median(answered), 1),
        "loop_stood_still_max_ms": round(1000 * max(pauses), 1),
        "requests_for_a_page": looked,
        "load_average": os.getloadavg()[0],
    }


async def _served(stage: Stage) -> dict[str, float]:
    """What the control plane takes without network and browser, and its loop's pauses meanwhile and at rest, in ms."""
    async with _standing_still() as at_rest:
        await asyncio.sleep(REST_S)
    took = list[float]()
    async with _standing_still() as meanwhile:
        for _ in range(LOOKS):
            took.append(await _asked(stage))
    async with _standing_still() as searching:
        search_ms = await _asked(stage, q="task=django__django-4999")
    return {
        "served_ms": round(statistics.median(took), 1),
        "first_search_ms": round(search_ms, 1),
        "loop_stood_still_at_rest_max_ms": round(1000 * max(at_rest), 1),
        "loop_stood_still_serving_max_ms": round(1000 * max(meanwhile), 1),
        "loop_stood_still_searching_max_ms": round(1000 * max(searching), 1),
    }


async def _asked(stage: Stage, **query: str) -> float:
    began_s = time.perf_counter()
    assert (await stage.plane.api("GET", "/v1/console", query=query)).status == 200
    return 1000 * (time.perf_counter() - began_s)


async def _painted_ms(page: Page) -> float:
    """When something was first seen, since the request. The page's policy forbids to wait for it in the page."""
    return float(await until(lambda: page.evaluate(PAINTED)))


@asynccontextmanager
async def _standing_still() -> AsyncIterator[list[float]]:
    """How late a task of the control plane's loop runs that wants to run every 2 ms, in seconds."""
    late = [0.0]

    async def look() -> None:
        while True:
            began_s = time.perf_counter()
            await asyncio.sleep(0.002)
            late.append(time.perf_counter() - began_s - 0.002)

    looking = asyncio.create_task(look())
    try:
        yield late
    finally:
        looking.cancel()


async def _drawn(page: Page, shown: Ui, sandbox_id: str, name: str) -> None:
    for what, path in (("overview", ""), ("sandbox", f"sandboxes/{sandbox_id}")):
        await page.goto(shown.home + path)
        await page.wait_for_load_state("networkidle")
        await page.screenshot(path=BUILD / f"{what}-{name}.png", full_page=what == "sandbox")
        wide, seen = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= seen, f"{what}-{name} is wider than the window"
