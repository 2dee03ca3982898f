"""SandboxFusion's bridge: keys, turns, sandboxes that are kept ready, and what errors of the platform are called."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from rollbox_bridges.fusion import languages, server
from rollbox_bridges.fusion.languages import Recipe
from tests.support.fusion_speaking import PROGRAM, Speaker, speaking
from tests.support.gateway_fake import API_KEY, FakeGateway, Fault


@pytest.fixture
async def fusion(fake: FakeGateway) -> AsyncIterator[Speaker]:
    async with speaking(fake) as speaker:
        yield speaker


@pytest.fixture
def holding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of Lua do not end by themselves."""
    monkeypatch.setitem(languages.RECIPES, "lua", Recipe("program.lua", ("hold",)))


def commands(fake: FakeGateway) -> list[dict[str, Any]]:
    return [asked for asked in fake.asked.values() if "argv" in asked]


def alive(fake: FakeGateway) -> int:
    return sum(1 for box in fake.sandboxes.values() if box["state"] != "ended")


async def test_a_request_is_one_sandbox_which_ends(fake: FakeGateway) -> None:
    async with speaking(fake, memory="256Mi", egress="offline") as fusion:
        told = (await fusion.run(stdin="words", memory_limit_MB=512)).json
        assert told["run_result"]["stdout"] == "words"
        assert (told["status"], told["executor_pod_name"]) == ("Success", next(iter(fake.sandboxes)))
        await fusion.run()
    asked, second = [body for body in fake.bodies if "image" in body]
    assert (asked["image"], asked["memory_bytes"], asked["egress"]) == ("python:1", {"limit": 2**29}, "offline")
    assert second["memory_bytes"] == {"limit": 2**28}
    assert "lease" not in asked
    assert (len(fake.sandboxes), alive(fake)) == (2, 0)
    run = commands(fake)[0]
    assert (run["argv"], run["cwd"], run["timeout_ms"]) == (["python3", "program.py"], "/tmp/program", 10_000)


async def test_a_program_is_built_before_it_runs(fake: FakeGateway, fusion: Speaker) -> None:
    told = (await fusion.run(language="cpp", compile_timeout=3)).json
    assert [one["argv"][0] for one in commands(fake)] == ["g++", "./program"]
    assert told["compile_result"]["return_code"] == told["run_result"]["return_code"] == 0
    fake.results["g++ -std=c++17 program.cpp -o program"] = {"exit_code": 1, "stderr": "no"}
    told = (await fusion.run(language="cpp")).json
    assert (told["status"], told["run_result"], told["compile_result"]["stderr"]) == ("Failed", None, "no")


async def test_sandboxes_are_ready_ahead_and_one_that_has_ended_is_no_answer(fake: FakeGateway) -> None:
    async with speaking(fake, warm=2) as fusion:
        assert (await fusion.run()).json["status"] == "Success"
        while alive(fake) < 2:
            await fusion.ask("GET", "/v1/ping")
        fake.fail("write", Fault("node_lost"))
        assert (await fusion.run()).json["status"] == "Success"
    assert alive(fake) == 0


async def test_a_platform_that_loses_every_sandbox_is_a_sandbox_error(fake: FakeGateway, fusion: Speaker) -> None:
    fake.fail("exec", Fault("node_lost"))
    answer = await fusion.run()
    assert (answer.status, answer.json["status"]) == (200, "SandboxError")
    assert "node_lost, fault: platform, mask_sample: true" in answer.json["message"]


async def test_a_sandbox_that_its_program_has_ended_is_a_failure(fake: FakeGateway, fusion: Speaker) -> None:
    fake.fail("exec", Fault("disk_full"))
    told = (await fusion.run()).json
    assert (told["status"], told["run_result"]["return_code"]) == ("Failed", -9)


@pytest.mark.parametrize(("code", "status"), [("quota_exceeded", 504), ("unsupported", 422)])
async def test_what_may_be_tried_again_says_so_by_its_status(
    fake: FakeGateway, fusion: Speaker, code: str, status: int
) -> None:
    fake.fail("create", *[Fault(code)] * 20)
    answer = await fusion.run()
    assert (answer.status, code in answer.json["detail"]) == (status, True)
    assert ("Retry-After" in answer.headers) == (status == 504)


async def test_a_language_that_the_image_has_not_is_refused_and_not_tried_again(
    fake: FakeGateway, fusion: Speaker
) -> None:
    fake.fail("exec", Fault("invalid_argument", details={"reason": "command_not_found"}))
    first = await fusion.run(language="ruby")
    second = await fusion.run(language="ruby")
    assert [first.status, second.status] == [422, 422]
    assert "'ruby'" not in first.json["detail"][0]["msg"]
    assert len(fake.sandboxes) == 1


@pytest.mark.parametrize("key", ["", "another", "\u00e9"])
async def test_a_request_without_a_good_key_runs_nothing(fake: FakeGateway, fusion: Speaker, key: str) -> None:
    answer = await fusion.with_key(key).run()
    assert (answer.status, len(fake.sandboxes)) == (401, 0)


async def test_the_key_is_a_password_a_token_or_a_header(fusion: Speaker) -> None:
    password = b64encode(f"rollbox:{API_KEY}".encode()).decode()
    for headers in ({"Authorization": f"Basic {password}"}, {"X-API-Key": API_KEY}):
        answer = await fusion.with_key("").ask("POST", "/run_code", headers, json=PROGRAM)
        assert answer.status == 200
    assert (
        await fusion.with_key("").ask("POST", "/run_code", {"Authorization": "Basic !"}, json=PROGRAM)
    ).status == 401


async def test_without_keys_requests_are_the_bridges_own(fake: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOX_API_KEY", API_KEY)
    async with speaking(fake, keyless=True) as fusion:
        assert (await fusion.with_key("").run()).status == 200
        assert (await fusion.with_key("another").run()).status == 401


async def test_keys_of_clients_stand_for_those_of_owners(fake: FakeGateway) -> None:
    async with speaking(fake, keys={"mine": API_KEY}) as fusion:
        assert [(await fusion.with_key(one).run()).status for one in ("mine", API_KEY)] == [200, 401]


@pytest.mark.usefixtures("holding")
async def test_requests_wait_for_their_turn_and_no_more_than_there_are_places(fake: FakeGateway) -> None:
    async with speaking(fake, at_once=1, waiting=1) as fusion:
        first = asyncio.create_task(fusion.run(language="lua"))
        await fake.holding.wait()
        second = asyncio.create_task(fusion.run())
        refused = await _refused(fusion)
        assert "1 requests run and 1 wait" in refused
        assert len(fake.sandboxes) == 1
        first.cancel()
        assert (await second).json["status"] == "Success"
    assert alive(fake) == 0


async def _refused(fusion: Speaker) -> str:
    """Ask until there is no place, which the request before may not have taken yet."""
    while True:
        asked = asyncio.create_task(fusion.run())
        done, _ = await asyncio.wait([asked], timeout=5)
        if done and asked.result().status == 504:
            return str(asked.result().json["detail"])
        asked.cancel()
        await asyncio.wait([asked])


@pytest.mark.usefixtures("holding")
async def test_a_caller_that_goes_away_ends_its_program(fake: FakeGateway, fusion: Speaker) -> None:
    asked = asyncio.create_task(fusion.run(language="lua"))
    await fake.holding.wait()
    asked.cancel()
    while alive(fake):
        await fusion.ask("GET", "/v1/ping")


async def test_blanks_before_the_answer_say_that_it_comes(
    fake: FakeGateway, fusion: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_ALIVE_S", 0.0)
    answer = await fusion.run(stdin="words")
    assert answer.body.startswith(b" ")
    assert answer.json["run_result"]["stdout"] == "words"
    fake.fail("create", *[Fault("quota_exceeded")] * 20)
    late = await fusion.run()
    assert (late.status, late.json["status"], "quota_exceeded" in late.json["message"]) == (200, "SandboxError", True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/ping", 200),
        ("GET", "/run_code", 405),
        ("POST", "/submit", 501),
        ("POST", "/get_prompts", 501),
        ("POST", "/other", 404),
    ],
)
async def test_routes(fusion: Speaker, method: str, path: str, status: int) -> None:
    assert (await fusion.ask(method, path)).status == status


@pytest.mark.parametrize(
    ("headers", "data", "status"),
    [
        ({"Content-Type": "text/plain"}, b"{}", 415),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, b"{}", 415),
        ({"Content-Type": "application/json"}, b"{", 422),
    ],
)
async def test_bodies_that_are_none(
    fake: FakeGateway, fusion: Speaker, headers: dict[str, str], data: bytes, status: int
) -> None:
    assert (await fusion.ask("POST", "/run_code", headers, data=data)).status == status
    assert fake.sandboxes == {}


async def test_a_body_of_a_length_that_is_not_said_or_too_great_is_not_read(fusion: Speaker) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"{}"

    kind = {"Content-Type": "application/json"}
    assert (await fusion.ask("POST", "/run_code", kind, data=parts())).status == 411
    async with aiohttp.ClientSession() as http:
        headers = {**kind, "Content-Length": str(2**27), "Authorization": f"Bearer {API_KEY}", "Expect": "100-continue"}
        async with http.post(f"{fusion.url}/run_code", data=b"", headers=headers, skip_auto_headers=[]) as answer:
            assert answer.status in {411, 413}
