"""Programs that fetch packages, through the real package cache, with the settings that the guide gives for each."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from tests.support import dated_index
from tests.support.package_cache import why_no_cache
from tests.support.package_programs import CACHE, Handler, proxy, run, why_no_program
from tests.support.tools import contents, packages
from tests.support.tools.hosts import ALL, DEBIAN, NPM, PYPI, PYPI_FILES
from tests.support.tools.programs import PROGRAMS

pytestmark = [
    pytest.mark.skipif(why_no_cache() is not None, reason=str(why_no_cache())),
    pytest.mark.timeout(300),
]

FETCH: Final = {program.name: program.fetch for program in PROGRAMS}
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


def _index(hosts: Path) -> Handler:
    """The files of all indexes, below the names of their hosts."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        found = hosts / request.path[1:]
        found = found / "index.html" if found.is_dir() else found
        return web.FileResponse(found) if found.is_file() else web.Response(status=404)

    return answer


@pytest.mark.parametrize(
    ("program", "file", "command"),
    [
        ("pip", "files.pythonhosted.org/tiny-1.0-py3-none-any.whl", FETCH["pip"]),
        ("uv", "files.pythonhosted.org/tiny-1.0-py3-none-any.whl", FETCH["uv"]),
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
    ids=["pip", "uv", "npm", "go", "cargo", "maven", "apt"],
)
async def test_a_program_fetches_a_package(tmp_path: Path, program: str, file: str, command: str) -> None:
    if why := why_no_program(program):
        pytest.skip(why)
    await asyncio.to_thread(contents.write, tmp_path)
    async with proxy(tmp_path, _index(tmp_path / "hosts"), {host: f"/{host}" for host in ALL}) as port:
        status, said = await run(command, tmp_path / "work", port)
    assert status == 0, said
    told = (tmp_path / "kept" / "log").read_text().splitlines()
    of_file = [line for line in told if f'"request":"GET /{file}"' in line]
    assert of_file
    # uv asks for the list of the files of a wheel first: for its end.
    assert all('"status":200' in line or '"status":206' in line for line in of_file), of_file
    assert '"cache":"MISS"' in of_file[0]


async def _dated(request: web.BaseRequest) -> web.StreamResponse:
    """Indexes of Python and of npm with two versions of a package, of 2020 and of 2025."""
    name = request.path.rpartition("/")[2]
    if request.path == "/pypi/simple/tiny/":
        return web.json_response(dated_index.project(), content_type=dated_index.PAGE)
    if request.path == "/npm/tiny":
        return web.json_response(_npm_package())
    content = dated_index.WHEELS.get(name) or _TARBALLS.get(name)
    return web.Response(body=content) if content else web.Response(status=404)


def _tarball(version: str) -> bytes:
    about = json.dumps({"name": "tiny", "version": version})
    return packages.tarball({"package/package.json": about, "package/index.js": f"module.exports = '{version}'\n"})


_TARBALLS: Final = {f"tiny-{version}.0.tgz": _tarball(f"{version}.0") for version in dated_index.RELEASES}


def _npm_package() -> dict[str, object]:
    versions = {
        f"{version}.0": {
            "name": "tiny",
            "version": f"{version}.0",
            "dist": {"tarball": f"https://{NPM}/tiny/-/tiny-{version}.0.tgz"},
        }
        for version in dated_index.RELEASES
    }
    time = {f"{version}.0": at for version, at in dated_index.RELEASES.items()}
    return {"name": "tiny", "dist-tags": {"latest": [*versions][-1]}, "versions": versions, "time": time}


@pytest.mark.parametrize(
    ("program", "later", "say"),
    [
        ("pip", "tiny==2.0", "cat there/tiny.py"),
        ("uv", "tiny==2.0", "cat there/tiny.py"),
        ("npm", "tiny@2.0.0", "cat node_modules/tiny/index.js"),
    ],
)
async def test_a_program_finds_what_was_there_at_a_date(tmp_path: Path, program: str, later: str, say: str) -> None:
    if why := why_no_program(program):
        pytest.skip(why)
    fetch = FETCH[program].partition(" && ")[0]
    hosts = {PYPI: "/pypi", PYPI_FILES: "/files", NPM: "/npm"}
    async with proxy(tmp_path, _dated, hosts, until="2024-06-01T00:00:00Z") as port:
        status, said = await run(f"{fetch}; {say}", tmp_path / "work", port)
        assert status == 0, said
        assert "1.0" in said.splitlines()[-1]
        refused, _ = await run(re.sub(r"\btiny$", later, fetch), tmp_path / "later", port)
    assert refused != 0
