"""Web frameworks in a sandbox, and their forms, redirects, cookies, uploads, events and WebSockets from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from yarl import URL

from rollbox import Sandbox
from tests.support.frameworks.visits import APPS, WAYS, digest, visitor
from tests.support.images import frameworks_image
from tests.support.product import Kept, keeping
from tests.support.stack import Product

pytestmark = pytest.mark.tools
ON_CLUSTER = os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster"
PORT = 8000
UVICORN = "python3 -m uvicorn fastapi_app:app --port 8000"
SERVERS = {
    "flask": "python3 flask_app.py 8000",
    "flask behind a proxy": "python3 flask_app.py 8000 behind",
    "fastapi": f"{UVICORN} --no-proxy-headers",
    "fastapi behind a proxy": f"{UVICORN} --proxy-headers --forwarded-allow-ips *",
    "django": "python3 django_app.py runserver 127.0.0.1:8000 --noreload",
    "aiohttp": "python3 aiohttp_app.py 8000",
    "express": "node express_app.cjs 8000",
    "sinatra": "ruby sinatra_app.rb 8000",
    "rails": "ruby rails_app.rb 8000",
}
# The others have no WebSockets of their own.
WITH_SOCKETS = ("fastapi", "fastapi behind a proxy", "aiohttp", "express")


@pytest.fixture(scope="module")
def kept(stack: Product) -> Iterator[Kept]:
    yield from keeping(stack, image=frameworks_image(), memory="2Gi")


@pytest.mark.parametrize("name", SERVERS)
async def test_a_framework_works_by_path_and_by_host_name_with_tls_and_without(
    stack: Product, shared: Sandbox, name: str, tmp_path: Path
) -> None:
    await shared.files.upload_dir(APPS, "/opt/web/apps")
    content = os.urandom(3 << 20)
    async with await shared.spawn(SERVERS[name].split(" "), cwd="/opt/web/apps"):
        await shared.ports.wait(PORT, timeout=120)
        port = await shared.ports.expose(PORT)
        for way in WAYS:
            async with visitor(URL(stack.url), port, *way, tmp_path) as there:
                assert await there.submit("häß&=") == (there.page / "done", "häß&= at /done"), way
                async with there.session.get(there.page / "slash") as answer:
                    assert (answer.url, await answer.text()) == (there.page / "slash/", "slash"), way
                assert await there.upload("a.bin", content) == f"a.bin {digest(content)}", way
                assert await there.events() == ["data: first", "data: second"], way
                if name in WITH_SOCKETS:
                    assert await there.talk("ö") == (f"http://localhost:{PORT}", "ö"), way
