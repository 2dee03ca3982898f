"""Programs that fetch packages, through the real package cache, with the settings that the guide gives for each."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from tests.support.package_cache import environ, serving, why_no_cache
from tests.support.stack import free_port
from tests.support.tools import contents
from tests.support.tools.hosts import ALL, DEBIAN
from tests.support.tools.programs import PROGRAMS

pytestmark = [
    pytest.mark.skipif(why_no_cache() is not None, reason=str(why_no_cache())),
    pytest.mark.timeout(300),
]

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
CACHE: Final = "http://packages.rollbox.internal"
FETCH: Final = {program.name: program.fetch for program in PROGRAMS}
# As the sidecar sets them for every command where there is a cache.
SETTINGS: Final = {
    "PIP_INDEX_URL": f"{CACHE}/pypi.org/simple/",
    "PIP_TRUSTED_HOST": "packages.rollbox.internal",
    "npm_config_registry": f"{CACHE}/registry.npmjs.org/",
    "GOPROXY": f"{CACHE}/proxy.golang.org",
}
# Where rustup keeps compilers, which is not below the home that programs have here.
TOOLCHAINS: Final = {"RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))}
CARGO: Final = f"""
mkdir home && cat > home/config.toml <<'TOML'
[source.crates-io]
replace-with = "cache"
[source.cache]
registry = "sparse+{CACHE}/index.crates.io/"
TOML
"""
MAVEN: Final = f"""
mkdir .m2 && cat > .m2/settings.xml <<'XML'
<settings><mirrors><mirror>
<id>cache</id><mirrorOf>*</mirrorOf><url>{CACHE}/repo.maven.apache.org/maven2</url>
</mirror></mirrors></settings>
XML
"""
APT: Final = f"""
mkdir -p lists/partial archives/partial
echo 'deb [trusted=yes] {CACHE}/{DEBIAN}/debian ./' > own.list
set -- -qq -o Dir::Etc::sourcelist=$PWD/own.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$PWD/lists \\
  -o Dir::Cache::archives=$PWD/archives -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any
apt-get "$@" update && apt-get "$@" download tiny && dpkg-deb --contents tiny*.deb | grep -q etc/tiny"""


@asynccontextmanager
async def _serving(answer: Handler) -> AsyncIterator[int]:
    """The port of a server on the loopback."""
    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _index(hosts: Path) -> Handler:
    """The files of all indexes, below the names of their hosts."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        found = hosts / request.path[1:]
        found = found / "index.html" if found.is_dir() else found
        return web.FileResponse(found) if found.is_file() else web.Response(status=404)

    return answer


def _egress(http: aiohttp.ClientSession, cache: str) -> Handler:
    """What egress tells the cache of a request for it in absolute form, and refuses all else."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "GET" or not request.raw_path.startswith(f"{CACHE}/"):
            return web.Response(status=403)
        path = request.raw_path.removeprefix(CACHE)
        told = {name: value for name, value in request.headers.items() if name in ("Accept", "Range", "User-Agent")}
        told |= {"Host": "packages.rollbox.internal", "x-rollbox-index": path.split("/")[1]}
        async with http.get(URL(f"{cache}{path}", encoded=True), headers=told, allow_redirects=False) as answered:
            kept = {name: value for name, value in answered.headers.items() if name in ("Content-Type", "Location")}
            return web.Response(status=answered.status, body=await answered.read(), headers=kept)

    return answer


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[int]:
    """The port of a proxy that leads to the cache alone, in front of indexes with one package each."""
    await asyncio.to_thread(contents.write, tmp_path)
    async with _serving(_index(tmp_path / "hosts")) as index, aiohttp.ClientSession() as http:
        indexes = {host: f"http://127.0.0.1:{index}/{host}" for host in ALL}
        settings = environ(tmp_path / "kept", free_port(), indexes)
        async with serving(settings), _serving(_egress(http, f"http://{settings['ROLLBOX_PACKAGES_LISTEN']}")) as port:
            yield port


@pytest.mark.parametrize(
    ("program", "file", "command"),
    [
        ("pip", "files.pythonhosted.org/tiny-1.0-py3-none-any.whl", FETCH["pip"]),
        ("npm", "registry.npmjs.org/tiny/-/tiny-1.0.0.tgz", FETCH["npm"]),
        ("go", "proxy.golang.org/example.test/tiny/@v/v1.0.0.zip", FETCH["go"]),
        ("cargo", "static.crates.io/crates/tiny/1.0.0/download", CARGO + FETCH["cargo"]),
        (
            "mvn",
            "repo.maven.apache.org/maven2/test/tiny/extension/1/extension-1.jar",
            MAVEN + FETCH["maven"].replace("mvn", "mvn -s $PWD/.m2/settings.xml"),
        ),
        ("apt-get", "deb.debian.org/debian/./tiny.deb", APT),
    ],
    ids=["pip", "npm", "go", "cargo", "maven", "apt"],
)
async def test_a_program_fetches_a_package(tmp_path: Path, proxy: int, program: str, file: str, command: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which(program, path=path) is None:
        pytest.skip(f"this machine has no {program}")
    java = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={proxy}" for scheme in ("http", "https"))
    variables = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{proxy}")
    work = tmp_path / "work"
    work.mkdir()
    ran = await asyncio.create_subprocess_exec(
        "bash",
        "-ec",
        command,
        cwd=work,
        env={"PATH": path, "HOME": str(work), "MAVEN_OPTS": java, **SETTINGS, **variables, **TOOLCHAINS},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await ran.communicate()
    assert ran.returncode == 0, said.decode()
    told = (tmp_path / "kept" / "log").read_text().splitlines()
    (of_file,) = (line for line in told if f'"request":"GET /{file}"' in line)
    assert '"status":200,"cache":"MISS"' in of_file
