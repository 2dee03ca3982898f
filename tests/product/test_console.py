"""`rollbox ui` against the running product: through the gateway, with real sandboxes."""

from __future__ import annotations

import asyncio
import signal

import aiohttp

from rollbox import Sandbox
from rollbox.cli.console.front import COOKIE
from tests.support.command_line import started
from tests.support.stack import Product


async def test_a_browser_sees_a_sandbox_what_it_uses_and_its_commands(stack: Product, shared: Sandbox) -> None:
    hostile = "echo '<img src=x onerror=alert(1)>' \x1b[31m"
    await shared.exec(hostile)
    ran = await started(stack, "ui", "--print")
    assert ran.stdout is not None
    address = (await ran.stdout.readline()).decode().strip()
    home = address.partition("login")[0]
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), raise_for_status=True) as browser:
            async with browser.get(address) as answer:
                cookie = {"Cookie": f"{COOKIE}={answer.cookies[COOKIE].value}"}

            async def page(path: str) -> str:
                async with browser.get(home + path, headers=cookie) as answer:
                    return await answer.text()

            assert shared.id in await page(f"?q={shared.id}")
            one = await page(f"sandboxes/{shared.id}")
            assert "a command has run in it: ready" in one
            assert "&lt;img src=x onerror=alert(1)&gt;" in one
            assert ("\x1b" in one, "<img" in one, "\\x1b[31m" in one) == (False, False, True)
            async with browser.get(f"{home}usage?id={shared.id}", headers=cookie) as answer:
                used = (await answer.json())[shared.id]
            assert used["cpu_ms"] > 0
            assert "MiB" in used["memory"]
            async with browser.get(f"{home}static/console.js", headers=cookie) as answer:
                assert answer.content_type == "text/javascript"
    finally:
        ran.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            assert await ran.wait() == 0
