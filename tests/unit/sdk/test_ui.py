"""`rollbox ui`: whom its server lets in, what it passes on, and what it says when something fails."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from rollbox._problem import SandboxError
from rollbox.cli.console import own_pages
from rollbox.cli.console.front import COOKIE, Front, serving
from rollbox.cli.console.logins import CODE_S, SESSION_S, Logins
from rollbox.cli.ui import has_browser
from rollbox.errors import SandboxNotFound, UpstreamTimeout
from rollbox.gateway import Page, Query
from tests.support.fake_problems import problem

HOSTILE = "<script>alert(1)</script>\x1b[31m"


@dataclass
class Platform:
    """What the server asks of the platform, and what that answers."""

    asked: list[tuple[tuple[str, ...], Query]] = field(default_factory=list)
    error: SandboxError | None = None
    said: list[str] = field(default_factory=list)
    now_s: float = 0.0

    async def fetch(self, parts: tuple[str, ...], query: Query) -> Page:
        self.asked.append((parts, query))
        if self.error is not None:
            raise self.error
        return Page(b"the page", "text/html; charset=utf-8")


@dataclass
class Browser:
    """Speaks to the server; keeps no cookies by itself."""

    session: aiohttp.ClientSession
    base: str
    front: Front
    platform: Platform

    @property
    def home(self) -> str:
        return self.front.login_path.partition("login")[0]

    async def get(self, path: str, cookie: str = "", **headers: str) -> tuple[int, str, aiohttp.ClientResponse]:
        sent = {**headers, **({"Cookie": f"{COOKIE}={cookie}"} if cookie else {})}
        async with self.session.get(self.base + path, headers=sent, allow_redirects=False) as answer:
            return answer.status, await answer.text(), answer

    async def log_in(self) -> str:
        _, _, answer = await self.get(self.front.login_path)
        return answer.cookies[COOKIE].value


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    platform = Platform()
    front = Front(platform.fetch, platform.said.append, lambda: platform.now_s)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with serving(front, listener), aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            yield Browser(session, base, front, platform)


async def test_the_address_logs_one_browser_in_and_its_cookie_is_for_these_pages_alone(browser: Browser) -> None:
    status, page, answer = await browser.get(browser.front.login_path)
    cookie = answer.cookies[COOKIE]
    assert (status, 'content="0;url=./"' in page) == (200, True)
    assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == (browser.home, True, "Strict")
    assert len(browser.home) > 16
    status, page, _ = await browser.get(browser.home, cookie.value)
    assert (status, page) == (200, "the page")


async def test_a_code_works_once_and_a_second_use_is_told(browser: Browser) -> None:
    cookie = await browser.log_in()
    status, page, answer = await browser.get(browser.front.login_path)
    assert (status, "was used before" in page, COOKIE in answer.cookies) == (403, True, False)
    assert browser.platform.said == ["the login code was tried a second time, by a browser that is not logged in"]
    # The browser that is logged in may open the address again.
    assert (await browser.get(browser.front.login_path, cookie))[0] == 200
    assert len(browser.platform.said) == 1


@pytest.mark.parametrize("code", ["", "x", "é"])
async def test_a_wrong_code_is_refused_and_does_not_use_up_the_right_one(browser: Browser, code: str) -> None:
    status, page, _ = await browser.get(f"{browser.home}login?code={code}")
    assert (status, "is not the one" in page) == (403, True)
    assert await browser.log_in()


async def test_what_only_looks_at_the_address_does_not_use_up_its_code(browser: Browser) -> None:
    async with browser.session.head(browser.base + browser.front.login_path) as answer:
        assert answer.status == 405
    assert await browser.log_in()


async def test_a_cookie_of_the_same_name_from_another_server_hides_nothing(browser: Browser) -> None:
    cookie = await browser.log_in()
    for other in ("x", "\udcff"):
        assert (await browser.get(browser.home, f"{cookie}; {COOKIE}={other}"))[0] == 200
        assert (await browser.get(browser.home, other))[0] == 403


async def test_codes_and_sessions_lapse(browser: Browser) -> None:
    cookie = await browser.log_in()
    browser.platform.now_s = SESSION_S
    status, page, _ = await browser.get(browser.home, cookie)
    assert (status, "not logged in" in page, browser.platform.asked) == (403, True, [])
    # A page that is open shows what is so marked.
    assert "<p data-problem>Its login is over" in page
    late = Logins(lambda: browser.platform.now_s)
    browser.platform.now_s += CODE_S
    assert late.exchange(late.code) == (None, "lapsed")


async def test_nobody_else_gets_in(browser: Browser) -> None:
    cookie = await browser.log_in()
    for path, given in ((browser.home, ""), (browser.home, "x"), ("/", cookie), ("/other/", cookie)):
        status, page, _ = await browser.get(path, given)
        assert (status in (403, 404), "not logged in" in page) == (True, True)
    for site in ("same-site", "cross-site"):
        assert (await browser.get(browser.home, cookie, **{"Sec-Fetch-Site": site}))[0] == 403
    for host in ("evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example"):
        assert (await browser.get(browser.home, cookie, Host=host))[0] == 421
    assert browser.platform.asked == []
    for host in ("localhost:8080", "127.0.0.1", "[::1]:9"):
        assert (await browser.get(browser.home, cookie, Host=host, **{"Sec-Fetch-Site": "none"}))[0] == 200


async def test_only_pages_are_passed_on_and_only_read(browser: Browser) -> None:
    cookie = await browser.log_in()
    for path, parts in (
        ("", ()),
        ("?q=a%3Db&page=2", ()),
        ("sandboxes/sb-1", ("sandboxes", "sb-1")),
        ("usage?id=a&id=b", ("usage",)),
        ("static/console.css?1", ("static", "console.css")),
    ):
        assert (await browser.get(browser.home + path, cookie))[0] == 200
        assert browser.platform.asked[-1][0] == parts
    assert browser.platform.asked[1][1] == [("q", "a=b"), ("page", "2")]
    assert browser.platform.asked[3][1] == [("id", "a"), ("id", "b")]
    asked = len(browser.platform.asked)
    for path in ("sandboxes", "sandboxes/a/b", "sandboxes/..%2f..", "../v1/info", "exec", "static/a/b"):
        assert (await browser.get(browser.home + path, cookie))[0] in (403, 404), path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        async with browser.session.request(method, browser.base + browser.home) as answer:
            assert answer.status == 405
    assert len(browser.platform.asked) == asked


async def test_every_answer_bounds_what_a_page_may_do(browser: Browser) -> None:
    cookie = await browser.log_in()
    browser.platform.error = UpstreamTimeout(HOSTILE)
    for path in (browser.home, "/", "/own.css", "/favicon.ico", f"{browser.home}nothing", browser.front.login_path):
        _, _, answer = await browser.get(path, cookie)
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert (answer.headers["Cache-Control"], answer.headers["X-Frame-Options"]) == ("no-store", "DENY")


@pytest.mark.parametrize(
    ("error", "status", "again"),
    [
        (UpstreamTimeout(f"no connection to http://gateway: {HOSTILE}", hint=HOSTILE), 502, True),
        (SandboxNotFound(f"there is no sandbox {HOSTILE}"), 404, False),
    ],
)
async def test_failures_are_told_with_what_to_do(
    browser: Browser, error: SandboxError, status: int, *, again: bool
) -> None:
    cookie = await browser.log_in()
    browser.platform.error = error
    found, page, _ = await browser.get(f"{browser.home}sandboxes/sb-1", cookie)
    assert (found, 'http-equiv="refresh"' in page) == (status, again)
    assert f"<p data-problem>{error.code}: " in page
    assert ("<script>" in page, "\x1b" in page, "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m" in page) == (
        False,
        False,
        True,
    )
    assert 'href="../"' in page


def test_the_own_pages_have_no_style_and_no_script_of_their_own() -> None:
    for page in (own_pages.logged_in(), own_pages.unknown_browser(), own_pages.refused("used"), own_pages.no_page()):
        assert not re.search(r"<script|<style|style=|\son\w+=", page)


def test_a_browser_is_opened_where_there_is_one() -> None:
    assert not has_browser({}, "linux")
    assert has_browser({"DISPLAY": ":0"}, "linux")
    assert has_browser({"BROWSER": "firefox"}, "linux")
    assert has_browser({}, "darwin")


async def _console(request: web.Request) -> web.Response:
    if request.headers.get("Authorization") != "Bearer rbx_right":
        return problem("unauthenticated", "the API key is not known here")
    return web.Response(text="<p>pages</p>", content_type="text/html")


async def _older(request: web.Request) -> web.Response:
    answer = problem("invalid_argument", f"there is nothing at GET {request.path}")
    answer.set_status(404)
    return answer


async def _switched_off(request: web.Request) -> web.Response:
    del request
    return problem("unsupported", "the console is switched off in this installation")


@asynccontextmanager
async def platform(handler: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/v1/console", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        try:
            await web.SockSite(runner, listener).start()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            await runner.cleanup()


async def started(url: str, *arguments: str, key: str = "rbx_right") -> asyncio.subprocess.Process:
    environ = {**os.environ, "ROLLBOX_URL": url, "ROLLBOX_API_KEY": key, "DISPLAY": ":99", "PYTHONPATH": "sdk/src"}
    command = (sys.executable, "-m", "rollbox", "ui", *arguments)
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
    )


@pytest.mark.parametrize(
    ("handler", "key", "code", "exit_code", "words"),
    [
        (_console, "rbx_wrong", "unauthenticated", 2, "not known here"),
        (_older, "rbx_right", "unsupported", 2, "has no console: it is older than this client"),
        (_switched_off, "rbx_right", "unsupported", 2, "switched off"),
    ],
)
async def test_what_is_wrong_is_said_before_there_is_an_address(
    handler: object, key: str, code: str, exit_code: int, words: str
) -> None:
    async with platform(handler) as url:
        stdout, stderr = await (ran := await started(url, "--json", key=key)).communicate()
    told = json.loads(stderr)
    assert (ran.returncode, stdout, told["code"]) == (exit_code, b"", code)
    assert words in told["detail"]
    assert told["hint"] or handler is _switched_off
    assert key not in stderr.decode()


async def test_without_a_server_it_says_how_to_start_one() -> None:
    stdout, stderr = await (ran := await started("http://127.0.0.1:1", "--print")).communicate()
    assert (ran.returncode, stdout) == (5, b"")
    assert "rollbox up" in stderr.decode()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_it_prints_the_address_serves_and_ends_with_a_signal(stop: signal.Signals) -> None:
    async with platform(_console) as url:
        ran = await started(url, "--print")
        assert ran.stdout is not None
        address = (await ran.stdout.readline()).decode().strip()
        assert "rbx_right" not in address
        home = address.partition("login")[0]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            async with session.get(address) as answer:
                cookie = answer.cookies[COOKIE].value
            async with session.get(home, headers={"Cookie": f"{COOKIE}={cookie}"}) as answer:
                assert (answer.status, await answer.text()) == (200, "<p>pages</p>")
        ran.send_signal(stop)
        assert await ran.wait() == 0


async def test_a_port_that_is_taken_is_named() -> None:
    async with platform(_console) as url:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            _, stderr = await (ran := await started(url, "--port", port)).communicate()
    assert (ran.returncode, f"port {port}" in stderr.decode()) == (2, True)
