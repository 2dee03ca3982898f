"""Package managers in the steps of a build find the package cache of the installation."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from rollbox import Client
from rollbox.errors import BuildFailed
from tests.support.containers import engine
from tests.support.images import IMAGE
from tests.support.outside import outside
from tests.support.stack import start, stop_process

pytestmark = [pytest.mark.egress, pytest.mark.tools]
# As pip does, whose own variable it is.
OPEN = "u.urlopen(os.environ['PIP_INDEX_URL'] + 'tiny/', timeout=20)"
GET = f"import os, urllib.request as u; print({OPEN}.read().decode())"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short state folder."""
    made = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@asynccontextmanager
async def cache(asked: list[str]) -> AsyncIterator[int]:
    """A package cache that has a page of one index; the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.split()[1])
        body = b"a page of tiny"
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_step_finds_the_package_cache_and_the_image_has_nothing_of_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    (tmp_path / "Dockerfile").write_text(
        f'FROM {IMAGE}\nRUN echo {uuid4().hex}; python3 -c "{GET}" > /page\n'
        "FROM scratch\nCOPY --from=0 / /\nENV PATH=/usr/local/bin:/usr/bin:/bin\nRUN env > /env\n"
        "ENV GOPROXY=off\nRUN echo $GOPROXY > /go; env -u GOPROXY > /env\n"
    )
    with outside(tmp_path):
        async with cache(asked) as port:
            monkeypatch.setenv("ROLLBOX_EGRESS_PACKAGES_URL", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("ROLLBOX_CONTROLPLANE_EGRESS_PACKAGES", "pypi.org,proxy.golang.org")
            up = await start(folder)
            async with Client(up.url, up.api_key) as client:
                # Without the policy there is neither a variable nor a way.
                with pytest.raises(BuildFailed, match="RUN echo"):
                    await client.build(tmp_path)
                built = await client.build(tmp_path, egress="packages")
                async with await client.create(built) as sandbox:
                    assert (await sandbox.exec("cat /page /go")).stdout == "a page of tiny\noff\n"
                    assert (
                        "PIP_INDEX_URL=http://packages.rollbox.internal/pypi.org/simple/"
                        in (await sandbox.exec("cat /env")).stdout.splitlines()
                    )
                assert "PIP_INDEX_URL" not in await engine("inspect", "--format", "{{.Config.Env}}", built.digest)
                await client.remove_image(built)
            assert await stop_process(up.process) == 0
    assert asked == ["/pypi.org/simple/tiny/"]
