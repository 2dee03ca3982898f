"""Templates over E2B's bridge: builds, their files, names and tags, and what is refused."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from tests.support.e2b_speaking import Answer, Speaker
from tests.support.gateway_fake import FakeGateway

HASH = "a" * 64


def archive(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("_", "/"))
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


async def requested(e2b: Speaker, **body: Any) -> str:
    """A build that can be started; where it is."""
    answer = await e2b.control("POST", "/v3/templates", {"name": "mine:v1", **body})
    assert answer.status == 202, answer.body
    return f"/templates/mine/builds/{answer.json['buildID']}"


async def ended(e2b: Speaker, build: str) -> dict[str, Any]:
    while (told := (await e2b.control("GET", f"{build}/status?logsOffset=0")).json)["status"] == "building":
        pass
    return dict(told)


async def uploaded(e2b: Speaker, content: bytes) -> Answer:
    link = await e2b.control("GET", f"/templates/mine/files/{HASH}")
    assert (link.status, link.json["present"]) == (201, False)
    async with e2b.http.put(link.json["url"], data=content) as answer:
        assert answer.status == 200
    return await e2b.control("GET", f"/templates/mine/files/{HASH}")


async def test_a_template_is_built_with_its_files_and_gets_its_names(fake: FakeGateway, e2b: Speaker) -> None:
    build = await requested(e2b, tags=["stable"])
    assert (await uploaded(e2b, archive(src_f=b"x"))).json["present"] is True
    copied = {"type": "COPY", "args": ["src", "/app", "", ""], "filesHash": HASH, "force": False}
    started = await e2b.control("POST", f"/v2{build}", {"fromImage": "python:1", "steps": [copied], "force": False})
    assert started.status == 202
    told = await ended(e2b, build)
    assert (told["status"], [one["message"] for one in told["logEntries"]]) == ("ready", ["STEP 1"])
    assert f'COPY ["{HASH}/src", "/app"]' in fake.images.builds[-1][0]["dockerfile"]
    assert [body["name"] for body in fake.images.bodies] == ["mine:v1", "mine:stable"]
    # The sandbox by which it was named is not there any more.
    assert [one["state"] for one in fake.sandboxes.values() if not one.get("end")] == []


async def test_a_build_that_fails_says_why(e2b: Speaker) -> None:
    build = await requested(e2b)
    absent = {"type": "COPY", "args": ["src", "/app", "", ""], "filesHash": HASH}
    await e2b.control("POST", f"/v2{build}", {"fromImage": "python:1", "steps": [absent]})
    told = await ended(e2b, build)
    assert (told["status"], "were not uploaded" in told["reason"]["message"]) == ("error", True)
    again = await e2b.control("POST", f"/v2{build}", {"fromImage": "python:1"})
    assert again.status == 409


@pytest.mark.parametrize("name", ["../out", "/out"])
async def test_files_that_reach_out_are_no_files_of_a_build(e2b: Speaker, name: str) -> None:
    build = await requested(e2b)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as made:
        made.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
    await uploaded(e2b, packed.getvalue())
    copied = {"type": "COPY", "args": [".", "/app", "", ""], "filesHash": HASH}
    await e2b.control("POST", f"/v2{build}", {"fromImage": "python:1", "steps": [copied]})
    told = await ended(e2b, build)
    assert (told["status"], "cannot be unpacked" in told["reason"]["message"]) == ("error", True)


async def test_what_is_no_archive_is_told(e2b: Speaker) -> None:
    build = await requested(e2b)
    await uploaded(e2b, b"none")
    copied = {"type": "COPY", "args": [".", "/app", "", ""], "filesHash": HASH}
    await e2b.control("POST", f"/v2{build}", {"fromImage": "python:1", "steps": [copied]})
    assert "cannot be unpacked" in (await ended(e2b, build))["reason"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v3/templates", {"name": "A"}, 400),
        ("POST", "/v3/templates", {"name": "a", "cpuCount": 8}, 501),
        ("POST", "/v3/templates", {"name": "a", "later": 1}, 400),
        ("POST", "/v3/templates", {"name": "a", "tags": "b"}, 400),
        ("GET", "/templates/mine/files/x", None, 400),
        ("GET", "/templates/mine/builds/none/status", None, 404),
        ("POST", "/v2/templates/mine/builds/none", {"fromImage": "a"}, 404),
        ("GET", "/templates/aliases/none", None, 404),
        ("GET", "/templates/none/tags", None, 404),
        ("DELETE", "/templates/none", None, 404),
        ("POST", "/templates/tags", {"target": "none", "tags": ["a"]}, 404),
        ("PATCH", "/templates/mine", {"public": True}, 501),
    ],
)
async def test_what_there_is_not_is_told(e2b: Speaker, method: str, path: str, body: Any, status: int) -> None:
    answer = await e2b.control(method, path, body)
    assert (answer.status, answer.json["code"]) == (status, status)


async def test_an_address_of_an_upload_is_for_one_archive(e2b: Speaker) -> None:
    link = (await e2b.control("GET", f"/templates/mine/files/{HASH}")).json["url"]
    for url in (link.replace(HASH, "b" * 64), f"{e2b.url}/templates/uploads/{HASH}", f"{link[:-3]}AAA"):
        async with e2b.http.put(url, data=b"x") as answer:
            assert answer.status == 401


async def test_templates_are_listed_tagged_and_removed(fake: FakeGateway, e2b: Speaker) -> None:
    fake.images.kept = ["mine:v1", "mine:default", "builds:1"]
    assert [one["names"] for one in (await e2b.control("GET", "/templates")).json] == [["mine:v1"], ["mine:default"]]
    assert (await e2b.control("GET", "/templates/aliases/mine")).json == {"templateID": "mine", "public": False}
    assert [one["tag"] for one in (await e2b.control("GET", "/templates/mine/tags")).json] == ["v1", "default"]
    given = await e2b.control("POST", "/templates/tags", {"target": "mine:v1", "tags": ["new"]})
    assert (given.status, given.json["tags"], fake.images.bodies[-1]["name"]) == (201, ["new"], "mine:new")
    assert (await e2b.control("DELETE", "/templates/tags", {"name": "mine", "tags": ["v1"]})).status == 204
    assert [name.partition("@")[0] for name in fake.images.removed] == ["commits/me/mine:v1"]
    assert (await e2b.control("DELETE", "/templates/mine")).status == 204


async def test_a_template_is_found_by_its_name_where_there_is_no_such_image(fake: FakeGateway, e2b: Speaker) -> None:
    fake.images.kept = ["missing:default"]
    await e2b.create(templateID="missing")
    assert fake.bodies[-1]["image"].startswith("commits/me/missing:default@")
