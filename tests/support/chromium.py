"""The browser of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, async_playwright


def why_no_chromium() -> str | None:
    """Why no browser can be started here, or None."""
    return None if shutil.which("chromium") else "chromium is not on PATH (setup/packages.sh chromium installs it)"


@asynccontextmanager
async def chromium(*options: str) -> AsyncIterator[Browser]:
    """A running Chromium, the distribution's, with these options of its command line."""
    # Its sandbox needs another user than root.
    also = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=[*options, *also])
        try:
            yield browser
        finally:
            await browser.close()
