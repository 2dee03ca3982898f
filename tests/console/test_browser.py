"""What a person sees and does in a browser, and what pages of others cannot do."""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Page, expect

from controlplane.cluster import Command
from tests.console.stage import Stage, Ui
from tests.support.world import OWNER

# A page is fetched again every five seconds, by a machine that may be slow.
SOON_MS = 60_000
HOSTILE = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"


@dataclass
class Watched:
    """A page, and what happened in it.

    Attributes:
        complaints: errors of scripts, and what the browser refused to load or run.
        hosts: of all requests.
    """

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


async def watched(context: BrowserContext) -> Watched:
    """A new page that is watched."""
    seen = Watched(await context.new_page())
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("console", lambda said: seen.complaints.append(said.text) if said.type == "error" else None)
    seen.page.on("request", lambda request: seen.hosts.add(request.url.split("/")[2]))
    seen.page.set_default_timeout(SOON_MS)
    return seen


async def logged_in(browser: Browser, shown: Ui) -> Watched:
    """A page with the console."""
    seen = await watched(await browser.new_context())
    await seen.page.goto(shown.address)
    await seen.page.wait_for_url(shown.home)
    return seen


async def test_the_address_logs_in_and_all_comes_from_this_machine(browser: Browser, stage: Stage, shown: Ui) -> None:
    (only,) = await stage.add(1)
    seen = await logged_in(browser, shown)
    await expect(seen.page.locator("#sandboxes a")).to_have_text(only)
    await expect(seen.page.locator("td.memory")).to_have_text("64 MiB / 512 MiB", timeout=SOON_MS)
    (cookie,) = await seen.page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (
        True,
        "Strict",
        "/" + shown.home.split("/", 3)[3],
    )
    assert await seen.page.evaluate("document.cookie") == ""
    assert seen.hosts == {shown.home.split("/")[2]}
    assert seen.complaints == []


async def test_another_browser_is_not_let_in(browser: Browser, shown: Ui) -> None:
    await logged_in(browser, shown)
    other = await watched(await browser.new_context())
    for address in (shown.home, shown.address):
        await other.page.goto(address)
        assert "console" not in await other.page.content() or "rollbox ui" in await other.page.content()
        assert await other.page.locator("#sandboxes").count() == 0


async def test_hostile_text_runs_nothing(browser: Browser, stage: Stage, shown: Ui) -> None:
    (only,) = await stage.add(1, task=HOSTILE)
    command = Command("e1", [HOSTILE, "\x1b]0;title\x07"], 1, "exited", 0, 1, 1)
    stage.plane.sidecars.ran_there[await stage.address(only)] = [command]
    seen = await logged_in(browser, shown)
    await expect(seen.page.locator("#sandboxes .label").last).to_contain_text("<script>")
    await seen.page.goto(f"{shown.home}?q={HOSTILE}")
    await expect(seen.page.locator("input[type=search]")).to_have_value(HOSTILE)
    await seen.page.goto(f"{shown.home}sandboxes/{only}")
    await expect(seen.page.locator("#commands code").last).to_contain_text("\\x1b]0;title")
    assert await seen.page.title() == f"{only} · rollbox"
    assert await seen.page.locator("main img").count() == 0
    assert seen.complaints == []


async def test_a_page_is_kept_current_and_what_is_typed_stays(browser: Browser, stage: Stage, shown: Ui) -> None:
    (first,) = await stage.add(1)
    seen = await logged_in(browser, shown)
    await seen.page.fill("input[type=search]", "half a wor")
    (second,) = await stage.add(1)
    await expect(seen.page.locator("#sandboxes a").first).to_have_text(second, timeout=SOON_MS)
    await stage.plane.service.delete(OWNER, first)
    await expect(seen.page.locator("#sandboxes")).not_to_contain_text(first, timeout=SOON_MS)
    await expect(seen.page.locator("#ends .legend")).to_contain_text("deleted by their owner 1", timeout=SOON_MS)
    await expect(seen.page.locator("input[type=search]")).to_have_value("half a wor")
    assert seen.complaints == []


async def test_what_has_focus_is_kept_current_too(browser: Browser, stage: Stage, shown: Ui) -> None:
    first, second = await stage.add(2)
    seen = await logged_in(browser, shown)
    await seen.page.locator(f"#sandboxes a:has-text('{first}')").focus()
    await stage.plane.service.delete(OWNER, second)
    await expect(seen.page.locator("#sandboxes")).not_to_contain_text(second, timeout=SOON_MS)
    await expect(seen.page.locator(f"#sandboxes a:has-text('{first}')")).to_be_focused()
    assert seen.complaints == []


async def test_one_finds_pages_and_looks_at_one_sandbox(browser: Browser, stage: Stage, shown: Ui) -> None:
    ids = await stage.add(60)
    page = (await logged_in(browser, shown)).page
    await page.click("a[rel=next]")
    await expect(page.locator("#sandboxes .quiet").first).to_have_text("51 to 60 of 60, newest first")
    await page.fill("input[type=search]", "task=django__django-7")
    await page.keyboard.press("Enter")
    await expect(page.locator("#sandboxes a")).to_have_count(1)
    await page.click("#sandboxes td.id a")
    await expect(page.locator("#timeline")).to_contain_text("a command has run in it: ready")
    await page.click(".brand")
    await page.wait_for_url(shown.home)
    await stage.plane.service.delete(OWNER, ids[0], wait_s=30)
    await page.click("#tabs >> text=ended")
    await expect(page.locator("#sandboxes td.phase")).to_have_text("deleted")


async def test_what_was_seen_stays_when_the_platform_goes(browser: Browser, stage: Stage, shown: Ui) -> None:
    (only,) = await stage.add(1)
    seen = await logged_in(browser, shown)
    stage.stop.set()
    stale = seen.page.locator("#stale")
    await expect(stale).to_contain_text("not updated: upstream_timeout: no connection", timeout=SOON_MS)
    await expect(seen.page.locator("#sandboxes a")).to_have_text(only)
    await seen.page.reload()
    await expect(seen.page.locator("[data-problem]")).to_contain_text("upstream_timeout: no connection")
    shown.process.send_signal(signal.SIGINT)
    await shown.process.wait()


async def test_it_says_so_when_the_command_has_ended(browser: Browser, stage: Stage, shown: Ui) -> None:
    await stage.add(1)
    seen = await logged_in(browser, shown)
    shown.process.send_signal(signal.SIGINT)
    assert await shown.process.wait() == 0
    await expect(seen.page.locator("#stale")).to_contain_text("may have ended", timeout=SOON_MS)


EVIL = """<!doctype html><title>waits</title><script>
const home = location.hash.slice(1);
async function go() {
  const got = [];
  for (const mode of ["cors", "no-cors", "same-origin"]) {
    try { got.push(await (await fetch(home, {mode, credentials: "include"})).text()); } catch { got.push(""); }
  }
  const frame = document.createElement("iframe");
  frame.src = home;
  document.body.append(frame);
  await new Promise(done => { frame.onload = done; setTimeout(done, 3000); });
  try { got.push(frame.contentDocument?.body?.innerHTML ?? ""); } catch { got.push(""); }
  const opened = open(home);
  await new Promise(done => setTimeout(done, 1500));
  try { got.push(opened.document.body.innerHTML); } catch { got.push(""); }
  document.title = got.join("").includes("sb-") ? "read it" : "read nothing";
}
</script><body onload="go()"></body>"""


@asynccontextmanager
async def evil_server(host: str) -> AsyncIterator[str]:
    """A page of somebody else's server on this machine: a port that was forwarded from a sandbox, for one."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=EVIL, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        try:
            await web.SockSite(runner, listener).start()
            yield f"http://{host}:{listener.getsockname()[1]}/"
        finally:
            await runner.cleanup()


async def test_a_page_of_another_server_of_this_machine_reads_nothing(
    browser: Browser, stage: Stage, shown: Ui
) -> None:
    (only,) = await stage.add(1)
    seen = await logged_in(browser, shown)
    assert only in await seen.page.evaluate("async () => await (await fetch(location.href)).text()")
    for host in ("127.0.0.1", "localhost"):
        async with evil_server(host) as address:
            page = await seen.page.context.new_page()
            asked, answers = _noted(page, shown.home)
            await page.goto(f"{address}#{shown.home}")
            await expect(page).to_have_title("read nothing", timeout=SOON_MS)
        # It has asked in more than one way, each time without success.
        assert asked.count(shown.home) >= 3
        assert {*answers} == {403}


def _noted(page: Page, home: str) -> tuple[list[str], list[int]]:
    """The addresses that a page asks for, and how the console answers it."""
    asked, answers = list[str](), list[int]()
    page.on("request", lambda one: asked.append(one.url))
    page.on("response", lambda one: answers.append(one.status) if one.url == home else None)
    return asked, answers
