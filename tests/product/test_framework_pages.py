"""Programs in a sandbox whose pages need a browser, in one: Next.js, Vite, Streamlit, Gradio, Jupyter, code-server."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Page, expect
from yarl import URL

from rollbox import Sandbox
from tests.support.chromium import chromium
from tests.support.frameworks.visits import APPS, FRONT, digest, secure, tls
from tests.support.images import frameworks_image
from tests.support.product import Kept, keeping
from tests.support.stack import Product
from tests.support.waiting import succeeds, until

pytestmark = pytest.mark.tools
PORT = 8000
SCHEMES = ("http", "https")
NEXT = "node /opt/web/node_modules/next/dist/bin/next dev --hostname 127.0.0.1 --port 8000 next"
VITE = "node /opt/web/node_modules/vite/bin/vite.js vite --host 127.0.0.1 --port 8000"
STREAMLIT = (
    "python3 -m streamlit run streamlit_app.py --server.headless true --global.developmentMode false --server.port 8000"
)
JUPYTER = "python3 -m notebook --no-browser --allow-root --port 8000 --IdentityProvider.token=of-tests"
CODE = (
    "node /opt/web/node_modules/code-server/out/node/entry.js --bind-addr 127.0.0.1:8000 --auth password "
    "--disable-telemetry --disable-update-check --disable-workspace-trust"
)
OFF: Final = {"GRADIO_ANALYTICS_ENABLED": "False", "NEXT_TELEMETRY_DISABLED": "1", "HOME": "/tmp/home"}
NOTHING: Final[Mapping[str, str]] = {}
# Of a page of Jupyter: what a kernel says to a line, over a WebSocket.
KERNEL: Final = """async (line) => {
  const token = document.cookie.match(/_xsrf=([^;]*)/)[1];
  const headers = { "X-XSRFToken": token };
  const kernel = await (await fetch("/api/kernels", { method: "POST", headers })).json();
  const socket = new WebSocket(`${location.origin.replace("http", "ws")}/api/kernels/${kernel.id}/channels`);
  await new Promise((opened) => (socket.onopen = opened));
  const header = { msg_id: "1", msg_type: "execute_request", session: "1", username: "", version: "5.3" };
  const content = { code: line, silent: false };
  socket.send(JSON.stringify({ header, content, channel: "shell", parent_header: {}, metadata: {} }));
  return await new Promise((said) => (socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.msg_type === "stream") said(message.content.text);
  }));
}"""


@pytest.fixture(scope="module")
def kept(stack: Product) -> Iterator[Kept]:
    yield from keeping(stack, image=frameworks_image(), memory="2Gi")


@asynccontextmanager
async def pages(
    stack: Product, sandbox: Sandbox, command: str, folder: Path, *, by: str = "host", told: Mapping[str, str] = NOTHING
) -> AsyncIterator[AsyncGenerator[tuple[Page, URL], None]]:
    """While the server runs: a page of a fresh browser without TLS, then one with it, each with the port's address."""
    await sandbox.files.upload_dir(APPS, "/opt/web/apps")
    async with await sandbox.spawn(command.split(" "), cwd="/opt/web/apps", env={**OFF, **told}):
        await sandbox.ports.wait(PORT, timeout=240)
        port = await sandbox.ports.expose(PORT, public=True)
        address = URL(port.url if by == "path" else str(port.host_url))
        async with aclosing(_visits(URL(stack.url), address, by, folder)) as visits:
            yield visits
        await sandbox.ports.close(PORT)


async def _visits(gateway: URL, address: URL, by: str, folder: Path) -> AsyncGenerator[tuple[Page, URL], None]:
    async with tls(gateway, folder) as front, chromium(_names(gateway, front)) as browser:
        for scheme in SCHEMES:
            context = await browser.new_context(ignore_https_errors=True)
            context.set_default_timeout(120_000)
            page = await context.new_page()
            yield page, address if scheme == "http" else secure(address, by, front)
            await context.close()


def _names(gateway: URL, front: int) -> str:
    """Chromium's option with which every name is the gateway's, and at this port that of what terminates TLS."""
    return f"--host-resolver-rules=MAP *:{front} {FRONT},MAP * {gateway.host}"


async def test_a_server_action_of_next(stack: Product, shared: Sandbox, tmp_path: Path) -> None:
    async with pages(stack, shared, NEXT, tmp_path) as visits:
        async for page, address in visits:
            await page.goto(str(address))
            await page.fill("input[name=said]", "häß")
            await page.click("button")
            await expect(page.locator("p")).to_have_text("got häß", timeout=120_000)
            assert page.url == str(address / "done")


async def test_vite_replaces_a_module_while_its_page_stays(stack: Product, shared: Sandbox, tmp_path: Path) -> None:
    async with pages(stack, shared, VITE, tmp_path) as visits:
        async for page, address in visits:
            await shared.files.write("/opt/web/apps/vite/text.js", 'export const text = "before";\n')
            await page.goto(str(address))
            await expect(page.locator("p")).to_have_text("before", timeout=120_000)
            await shared.files.write("/opt/web/apps/vite/text.js", 'export const text = "after";\n')
            await expect(page.locator("p")).to_have_text("after, not loaded anew: true", timeout=120_000)


@pytest.mark.parametrize("by", ["host", "path"])
async def test_streamlit_takes_words_and_files(stack: Product, shared: Sandbox, tmp_path: Path, by: str) -> None:
    content = os.urandom(1 << 20)
    async with pages(stack, shared, STREAMLIT, tmp_path, by=by) as visits:
        async for page, address in visits:
            await page.goto(str(address))
            await page.fill("input[type=text]", "häß")
            await page.press("input[type=text]", "Enter")
            await page.get_by_text("got häß").wait_for()
            file = {"name": "a.bin", "mimeType": "application/octet-stream", "buffer": content}
            await page.set_input_files("input[type=file]", file)  # type: ignore[arg-type]
            await page.get_by_text(f"a.bin {digest(content)}").wait_for()


@pytest.mark.parametrize("by", ["host", "path"])
async def test_gradio_answers_by_its_queue(stack: Product, shared: Sandbox, tmp_path: Path, by: str) -> None:
    async with pages(stack, shared, "python3 gradio_app.py 8000", tmp_path, by=by) as visits:
        async for page, address in visits:
            await page.goto(str(address))
            await page.get_by_label("said").fill("häß")
            await page.get_by_role("button", name="Submit").click()
            await expect(page.get_by_label("answer")).to_have_value("got häß", timeout=60_000)


async def test_jupyter_lets_in_by_its_form_and_runs_a_kernel(stack: Product, shared: Sandbox, tmp_path: Path) -> None:
    async with pages(stack, shared, JUPYTER, tmp_path) as visits:
        async for page, address in visits:
            await page.goto(str(address))
            await page.fill("input[name=password]", "of-tests")
            await page.click("button[type=submit]")
            await page.wait_for_url(str(address / "tree") + "**")
            assert await page.evaluate(KERNEL, "print(6*7)") == "42\n"


@pytest.mark.parametrize("by", ["host", "path"])
async def test_code_server_lets_in_by_its_form_and_runs_a_terminal(
    stack: Product, shared: Sandbox, tmp_path: Path, by: str
) -> None:
    async with pages(stack, shared, CODE, tmp_path, by=by, told={"PASSWORD": "of-tests"}) as visits:
        async for page, address in visits:
            await shared.exec(["rm", "-f", "/tmp/said"], check=True)
            await page.goto(str(address % {"folder": "/opt/web/apps/vite"}))
            await page.fill("input[name=password]", "of-tests")
            await page.press("input[name=password]", "Enter")
            await page.get_by_text("main.js").wait_for()
            await page.keyboard.press("Control+Shift+Backquote")
            await page.locator(".terminal.xterm").wait_for()
            await page.keyboard.type("echo $((6*7)) > /tmp/said\n")
            await until(partial(succeeds, shared, '[ "$(cat /tmp/said)" = 42 ]'))
