"""The package cache: its real nginx in front of an index of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.package_cache import (
    FILE_BYTES,
    PROGRAM,
    Index,
    PackageCache,
    environ,
    hurried,
    package_cache,
    why_no_cache,
)

pytestmark = pytest.mark.skipif(why_no_cache() is not None, reason=str(why_no_cache()))

CACHE = "http://packages.rollbox.internal"
FORM = "application/vnd.pypi.simple.v1+json"
# Published later than 1.0 and not earlier than 2.0, which came at this very moment.
UNTIL = "2024-06-01T00:00:00Z"
PAGE = "/pypi.org/simple/tiny/"
FILE = "/files.pythonhosted.org/packages/1.0/tiny-1.0-py3-none-any.whl"


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[PackageCache]:
    async with package_cache(tmp_path) as made:
        yield made


async def page(cache: PackageCache, until: str = "") -> dict[str, str]:
    """The addresses of the files of `tiny`, by version."""
    status, body = await cache.get(PAGE, until=until, Accept=FORM)
    assert status == 200, body
    return {one["filename"].split("-")[1]: one["url"] for one in json.loads(body)["files"]}


def path_of(url: str) -> str:
    assert url.startswith(CACHE), url
    return url.removeprefix(CACHE)


async def test_a_page_names_files_of_the_cache_in_both_forms(cache: PackageCache) -> None:
    assert await page(cache) == {
        version: f"{CACHE}/files.pythonhosted.org/packages/{version}/tiny-{version}-py3-none-any.whl"
        for version in ("1.0", "2.0", "3.0")
    }
    status, body = await cache.get(PAGE, Accept="text/html")
    assert status == 200
    assert body.count(b"<a href") == 3
    wanted = f'<a href="{CACHE}{FILE}#sha256=00" data-requires-python="&gt;=3.8" data-core-metadata="sha256=01">'
    assert wanted.encode() in body
    # Both are made of one answer of the index.
    assert cache.index.asked == {"/pypi/simple/tiny/": 1}
    status, body = await cache.get("/pypi.org/simple/undated/", Accept="text/html")
    assert f'<a href="{CACHE}/pypi.org/packages/ab/undated-1.0.tar.gz#sha256=00">'.encode() in body


async def test_of_many_that_ask_at_once_one_asks_the_index(cache: PackageCache) -> None:
    answers = await asyncio.gather(*(cache.get(FILE) for _ in range(20)), *(cache.get(PAGE) for _ in range(50)))
    assert {status for status, _ in answers} == {200}
    assert {len(body) for _, body in answers[:20]} == {FILE_BYTES}
    # 20 MB come in three pieces.
    assert cache.index.asked == {"/files/packages/1.0/tiny-1.0-py3-none-any.whl": 3, "/pypi/simple/tiny/": 1}
    assert (await cache.get(FILE, Range="bytes=5-9"))[1] == b"xxxxx"
    assert cache.index.asked.total() == 4


@pytest.mark.parametrize(
    ("fault", "says"),
    [(lambda index: setattr(index, "broken", 503), b"503"), (lambda index: index.answering.clear(), b"504")],
    ids=["broken", "hangs"],
)
async def test_an_index_that_fails_does_not_fail_what_is_kept(
    tmp_path: Path, fault: Callable[[Index], None], says: bytes
) -> None:
    async with package_cache(tmp_path / "kept", hurried(tmp_path)) as cache:
        found = await page(cache)
        await cache.get(FILE)
        fault(cache.index)
        # The page is too old by and by, and the index is asked again: in vain.
        async with asyncio.timeout(60):
            while cache.index.asked["/pypi/simple/tiny/"] == 1:
                assert await page(cache) == found
        assert cache.how == "STALE"
        assert await page(cache) == found
        assert (await cache.get(FILE))[0] == 200
        # What nobody has asked for yet says whose fault it is.
        status, body = await cache.get("/pypi.org/simple/other/")
        assert (status, body) == (int(says), b"the index answered " + says + b"\n")


async def test_a_page_that_is_too_old_is_given_to_nobody_who_asks_alone(tmp_path: Path) -> None:
    async with package_cache(tmp_path / "kept", hurried(tmp_path)) as cache:
        assert "4.0" not in await page(cache)
        cache.index.releases["4.0"] = "2026-01-01T00:00:00Z"
        async with asyncio.timeout(60):
            while "4.0" not in await page(cache):
                pass
    kept = {json.loads(line)["cache"] for line in (tmp_path / "kept/log").read_text().splitlines() if line[:1] == "{"}
    assert kept == {"MISS", "HIT", "EXPIRED"}


async def test_it_says_how_it_has_come_by_what_it_gives_of_an_index(cache: PackageCache) -> None:
    for path, says in ((PAGE, 200), (FILE, 200), ("/pypi.org/simple/other/", 404), ("/pypi.org/other", 404)):
        for how in ("MISS", "HIT"):
            assert (await cache.get(path, Accept=FORM))[0] == says
            assert cache.how == how, path
    # In another form the page is made anew, of what is kept.
    await cache.get(PAGE, Accept="text/html")
    assert cache.how == "HIT"
    for path in ("/own.test/six", "/index.crates.io/config.json", "/pypi.org/other?until", "/pypi.org/simple/undated/"):
        await cache.get(path, until="" if path.startswith("/own") else UNTIL)
        assert cache.how == "", path


async def test_a_redirect_of_an_index_leads_through_the_cache(cache: PackageCache) -> None:
    for path, leads_to in (
        ("/pypi.org/simple/Tiny/", f"{CACHE}{PAGE}"),
        ("/files.pythonhosted.org/packages/moved", f"{CACHE}{FILE}"),
        # Which egress decides on, as on any other address.
        ("/files.pythonhosted.org/packages/elsewhere", "https://elsewhere.test/tiny"),
    ):
        for _ in range(2):
            assert (await cache.get(path))[0] == 302
            assert cache.location == leads_to
    await cache.get("/pypi.org/simple/Tiny/", until=UNTIL)
    assert cache.location == f"{CACHE}{PAGE}"
    # The page of a redirect is kept as others are.
    assert cache.index.asked["/pypi/simple/Tiny/"] == 1


async def test_a_silent_name_server_is_not_waited_for_as_long_as_programs_wait(tmp_path: Path) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        settings = {
            "ROLLBOX_PACKAGES_INDEXES": "pypi.org=http://index.test",
            "ROLLBOX_PACKAGES_RESOLVER": f"127.0.0.1:{silent.getsockname()[1]}",
        }
        async with package_cache(tmp_path, settings) as cache, asyncio.timeout(15):
            assert (await cache.get(PAGE))[0] == 502


async def test_of_large_pages_as_many_are_made_at_once_as_memory_has_room_for(cache: PackageCache) -> None:
    answers = await asyncio.gather(*(cache.get(f"/registry.npmjs.org/large-{at}") for at in range(12)))
    assert {status for status, _ in answers} == {200}
    assert len({body for _, body in answers}) == 1
    # Two are made at a time, in some ten times the size of each (260 to 282 MB); all twelve at a time took 737.
    assert cache.most_memory_mb() < 500
    assert {times for path, times in cache.index.asked.items() if "large" in path} == {1}


async def test_what_is_kept_has_a_bound(tmp_path: Path) -> None:
    async with package_cache(tmp_path, {"ROLLBOX_PACKAGES_SIZE_MB": "50"}) as cache:
        paths = [FILE.replace("1.0", f"{at}.0") for at in range(5)]
        await asyncio.gather(*(cache.get(path) for path in paths))

        def kept() -> int:
            return sum(one.stat().st_size for one in (tmp_path / "files").rglob("*") if one.is_file())

        assert kept() >= len(paths) * FILE_BYTES
        # It looks every ten seconds.
        await eventually(lambda: kept() <= 50 << 20)
        assert {(await cache.get(path))[0] for path in paths} == {200}


async def test_under_a_date_later_files_are_not_there(cache: PackageCache) -> None:
    found = await page(cache, UNTIL)
    assert list(found) == ["1.0"]
    dated = path_of(found["1.0"])
    for path in (dated, f"{dated}.metadata"):
        status, body = await cache.get(path, until=UNTIL)
        assert (status, len(body)) == (200, FILE_BYTES)
    later = (await page(cache, "2025-01-01T00:00:00Z"))["2.0"]
    token = re.findall(r"/~[^/]+", dated)[0]
    for path, until in (
        # Its file by name, without the token of a page.
        (FILE, UNTIL),
        # The token of one file for another one, of another date, of nothing.
        (dated.replace("1.0", "2.0"), UNTIL),
        (dated, "2023-01-01T00:00:00Z"),
        (path_of(later), UNTIL),
        (FILE.replace("/packages", "/~/packages"), UNTIL),
        (FILE.replace("/packages", "/~AAAA/packages"), UNTIL),
        (f"{dated}?x", UNTIL),
        (dated.replace("files.pythonhosted.org", "registry.npmjs.org"), UNTIL),
        (f"/files.pythonhosted.org{token}/packages/1.0/../2.0/tiny-2.0-py3-none-any.whl", UNTIL),
        # What has no dates.
        ("/pypi.org/pypi/tiny/json", UNTIL),
        ("/pypi.org/simple/", UNTIL),
        ("/pypi.org/simple/undated/", UNTIL),
        ("/index.crates.io/config.json", UNTIL),
        ("/registry.npmjs.org/tiny/-/tiny-1.0.tgz", UNTIL),
        ("/registry.npmjs.org/-/v1/search?text=tiny", UNTIL),
        ("/registry.npmjs.org/tiny/latest", UNTIL),
    ):
        status, body = await cache.get(path, until=until)
        assert status == 403, path
        assert b"date" in body
    # Without a date nothing of it is refused, and the token means nothing.
    assert (await cache.get(FILE))[0] == 200
    assert (await cache.get(dated))[0] == 404


async def test_a_package_of_npm_is_that_of_its_date(cache: PackageCache) -> None:
    status, body = await cache.get("/registry.npmjs.org/tiny")
    whole = json.loads(body)
    assert (status, list(whole["versions"]), whole["dist-tags"]["latest"]) == (200, ["1.0", "2.0", "3.0"], "3.0")
    tarball = path_of(whole["versions"]["2.0"]["dist"]["tarball"])
    assert tarball == "/registry.npmjs.org/tiny/-/tiny-2.0.tgz"
    assert (await cache.get(tarball))[0] == 200
    _, body = await cache.get("/registry.npmjs.org/tiny", until="2024-06-02T00:00:00Z")
    dated = json.loads(body)
    assert (list(dated["versions"]), dated["dist-tags"]) == (["1.0", "2.0"], {"latest": "2.0", "old": "1.0"})
    assert dated["time"].keys() == dated["versions"].keys()
    tarball = path_of(dated["versions"]["2.0"]["dist"]["tarball"])
    assert (await cache.get(tarball, until="2024-06-02T00:00:00Z"))[0] == 200
    _, body = await cache.get("/registry.npmjs.org/tiny", until="2019-01-01T00:00:00Z")
    assert (json.loads(body)["versions"], json.loads(body)["dist-tags"]) == ({}, {})


async def test_only_what_egress_names_is_given(cache: PackageCache) -> None:
    for path, allowed in (
        (PAGE, "registry.npmjs.org"),
        (PAGE, ""),
        ("/evil.test/", "evil.test"),
        ("/pypi.org/../registry.npmjs.org/tiny", "pypi.org"),
        ("/pypi.org/%2e%2e/registry.npmjs.org/tiny", "pypi.org"),
        ("/", ""),
    ):
        assert (await cache.get(path, x_rollbox_index=allowed))[0] == 404, path
    assert (await cache.get(PAGE, method="POST"))[0] == 405
    assert not cache.index.asked
    assert json.loads((await cache.get("/index.crates.io/config.json"))[1])["dl"] == f"{CACHE}/static.crates.io/crates"


async def test_a_page_that_cannot_be_read_is_the_indexs_fault(cache: PackageCache) -> None:
    status, body = await cache.get("/pypi.org/simple/broken/", Accept=FORM)
    assert (status, body) == (502, b"the index answered with a page that cannot be read\n")


async def test_a_programs_own_words_make_no_further_copies(cache: PackageCache) -> None:
    for number in range(5):
        assert (await cache.get("/pypi.org/simple/", Accept=f"text/x-{number}"))[1] == b"all projects"
    assert cache.index.asked == {"/pypi/simple/": 1}


async def test_a_body_does_not_become_a_part_of_the_next_request(cache: PackageCache) -> None:
    for _ in range(20):
        status, _ = await cache.get(PAGE, body=b"GET /x", Accept=FORM)
        assert status in (200, 400)
        assert (await cache.get("/registry.npmjs.org/tiny"))[0] == 200


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("INDEXES", "", "NAME=URL"),
        ("INDEXES", "pypi.org=https://pypi.org/", "without a slash"),
        ("INDEXES", 'pypi.org=https://pypi.org";}', "NAME=URL"),
        ("INDEXES", "pypi.org=https://pypi.org\nx", "one line"),
        ("KEY", "short", "at least 32"),
        ("SIZE_MB", "many", "a number of megabytes"),
        ("LISTEN", "8080", "ADDRESS:PORT"),
        ("RESOLVER", "dns.test; include x", "ADDRESS"),
        ("CA_FILE", "/does/not/exist", "can be read"),
    ],
)
def test_a_setting_that_breaks_its_rule_stops_the_start(tmp_path: Path, name: str, value: str, rule: str) -> None:
    settings = environ(tmp_path, 1, {"pypi.org": "https://pypi.org"}) | {f"ROLLBOX_PACKAGES_{name}": value}
    environ_of_it = {**os.environ, **settings}
    ended = subprocess.run([PROGRAM / "start"], env=environ_of_it, capture_output=True, check=False, timeout=60)
    told = ended.stderr.decode()
    assert ended.returncode == 64
    assert f"ROLLBOX_PACKAGES_{name}" in told
    assert rule in told
    assert not list(tmp_path.iterdir())
