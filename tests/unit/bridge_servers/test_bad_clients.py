"""Prime's and SandboxFusion's bridges against clients that do wrong: what they ask, cut, and do not read.

Each is answered in the words of its protocol; others are served meanwhile, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from google.protobuf import json_format

from rollbox_bridges.connect.framing import enveloped
from rollbox_bridges.fusion import languages
from rollbox_bridges.fusion.languages import Recipe
from rollbox_bridges.prime.messages import SERVICE, SESSION
from tests.support import fusion_speaking, prime_speaking
from tests.support.fake_processes import Script
from tests.support.gateway_fake import API_KEY, FakeGateway
from tests.support.waiting import until

UUID = "11111111-2222-4333-8444-555555555555"
PROTO = {"Content-Type": "application/proto"}
CREATE = {"name": "mine", "docker_image": "python:1", "idempotency_key": "k"}


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/sandbox", {**CREATE, "later": 1}, "'later'"),
        ("POST", "/sandbox", {**CREATE, "volumes": ["v"]}, "volumes"),
        ("POST", "/sandbox", {**CREATE, "network_access": 0}, "network_access 0"),
        ("POST", "/sandbox", {**CREATE, "vm": 1}, "vm 1"),
        ("POST", "/sandbox", {**CREATE, "guaranteed": []}, "guaranteed []"),
        ("POST", "/sandbox", {**CREATE, "start_command": {"executable": "a", "args": "bc"}}, "args"),
        ("POST", "/sandbox", {**CREATE, "idempotency_key": "\ud800"}, "the body is no JSON"),
        ("POST", "/sandbox", {**CREATE, "cpu_cores": float("nan")}, "the body is no JSON"),
        ("POST", "/sandbox", {"name": "mine", "docker_image": "python:1"}, "idempotency_key"),
        ("GET", "/sandbox?later=1", None, "'later'"),
        ("GET", "/sandbox?page=0", None, "page '0'"),
        ("DELETE", "/sandbox", {"later": 1}, "'later'"),
        ("POST", "/sandbox/status:batchGet", {"sandbox_ids": ["a"], "later": 1}, "'later'"),
        ("PUT", "/sandbox/{}/egress-policy", {"allowlist": [], "denylist": None, "later": 1}, "later"),
        ("POST", "/sandbox/{}/expose", {"port": 80, "later": 1}, "'later'"),
        ("POST", "/sandbox/{}/expose", {"port": 0}, "port 0"),
    ],
)
async def test_what_primes_clients_of_later_or_earlier_ask_is_refused_by_its_name(
    fake: FakeGateway, prime: prime_speaking.Speaker, *, method: str, path: str, body: Any, says: str
) -> None:
    name = (await prime.create())["id"]
    answer = await prime.control(method, path.format(name), body)
    assert (answer.status in {400, 501}, says in answer.json["detail"]) == (True, True), answer
    assert [*fake.sandboxes] == [name]


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("List", bytes.fromhex("7a0101"), "invalid_argument"),
        ("SendSignal", SESSION["SendSignalRequest"](signal=2).SerializeToString(), "invalid_argument"),
        ("SendInput", b"\x0a\xff", "invalid_argument"),
        ("List", b"\x00" * (2**22 + 1), "out_of_range"),
        ("Later", b"", "unimplemented"),
    ],
)
async def test_calls_of_a_later_protocol_and_huge_ones_have_connects_codes(
    prime: prime_speaking.Speaker, name: str, data: bytes, code: str
) -> None:
    await prime.create()
    answer = await prime.within("POST", f"{SERVICE}/{name}", io.BytesIO(data), **PROTO)
    assert answer.json["code"] == code


async def test_the_id_of_another_owner_is_that_of_nobody(fake: FakeGateway, prime: prime_speaking.Speaker) -> None:
    mine = (await prime.create())["id"]
    made = {"gatewayAuth": {**prime.made["gatewayAuth"], "job_id": "sb-of-another"}}
    for path in ("", "/auth", "/error-context", "/logs", "/egress-policy"):
        answer = await prime.control("POST" if path == "/auth" else "GET", f"/sandbox/sb-of-another{path}")
        assert (answer.status, answer.json["error_code"]) == (404, "sandbox_not_found")
    assert (await prime.control("DELETE", "/sandbox/sb-of-another")).status == 404
    # Nor does a credential for one's own sandbox open it.
    assert (await prime.as_other(made=made).within("GET", "download?path=/etc/passwd")).status == 401
    assert fake.sandboxes[mine]["state"] != "ended"


async def raw(prime: prime_speaking.Speaker, path: str, head: str, data: bytes) -> asyncio.StreamWriter:
    """Send the beginning of a request to a sandbox, and read nothing of the answer."""
    auth, at = prime.made["gatewayAuth"], urlsplit(prime.url)
    _, writer = await asyncio.open_connection(at.hostname, at.port, limit=2**10)
    line = f"POST /{auth['user_ns']}/{auth['job_id']}/{path} HTTP/1.1"
    head = f"Host: x\r\nAuthorization: Bearer {auth['token']}\r\n{head}"
    writer.write(f"{line}\r\n{head}\r\n\r\n".encode() + data)
    await writer.drain()
    return writer


async def test_half_a_file_is_no_file(prime: prime_speaking.Speaker, tmp_path: Path) -> None:
    await prime.create()
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + b"x" * 100_000
    head = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 200000"
    writer = await raw(prime, "upload?path=/a", head, part)
    writer.transport.abort()
    assert (await prime.within("GET", "read-file?path=/a")).status == 404
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("uuid", [None, UUID], ids=["alone", "session"])
async def test_a_client_that_reads_nothing_holds_nobody_up_and_a_command_without_a_session_ends_with_it(
    fake: FakeGateway, prime: prime_speaking.Speaker, uuid: str | None
) -> None:
    await prime.create()
    command = SESSION["CommandSpec"](cmd="sh", args=["-c", "while :; do echo more; done"])
    asked = SESSION["StartRequest"](command=command, **({} if uuid is None else {"session_uuid": uuid}))
    data = enveloped(asked.SerializeToString())
    head = f"Content-Type: application/connect+proto\r\nContent-Length: {len(data)}"
    writer = await raw(prime, f"{SERVICE}/Start", head, data)

    async def begun() -> bool:
        return bool(fake.processes.execs)

    await until(begun)
    made = next(iter(fake.processes.execs.values()))
    assert (await prime.stream("Start", "StartRequest", {"command": {"cmd": "true"}}))[-1] == "{}"
    writer.transport.abort()
    if uuid is None:
        await until(lambda: ended(made))
        assert made.result is not None
        assert made.result["end"] == "cancelled"
        return
    assert made.result is None
    killed = await prime.call(
        "SendSignal", "SendSignalRequest", {"session": {"session_uuid": uuid}, "signal": "SIGNAL_SIGKILL"}
    )
    assert killed.status == 200
    await until(lambda: ended(made))


async def ended(made: Any) -> bool:
    """Whether a command has ended."""
    return made.result is not None


async def test_input_that_is_cut_is_had_as_far_as_it_came_whole(
    fake: FakeGateway, prime: prime_speaking.Speaker
) -> None:
    await prime.create()
    fake.processes.scripts["mine"] = Script(hold=True)
    start = {"command": {"cmd": "cat"}, "stdin": True, "session_uuid": UUID}
    running = asyncio.create_task(prime.stream("Start", "StartRequest", start))

    async def begun() -> bool:
        return any(one.pid for one in SESSION["ListResponse"].FromString(await listed()).sessions)

    async def listed() -> bytes:
        return (await prime.call("List", "ListRequest", {})).body

    await until(begun)
    made = next(iter(fake.processes.execs.values()))
    kind = SESSION["StreamInputRequest"]
    messages = [
        {"start": {"session": {"session_uuid": UUID}}},
        {"data": {"input": {"stdin": "d29yZHMK"}}},
        {"data": {"input": {"stdin": "bG9zdAo="}}},
    ]
    whole = [enveloped(json_format.ParseDict(one, kind()).SerializeToString()) for one in messages]
    data = whole[0] + whole[1] + whole[2][:-2]
    answer = await prime.within("POST", f"{SERVICE}/StreamInput", data, **{"Content-Type": "application/connect+proto"})
    assert b"ends within an envelope" in answer.body

    async def came() -> bool:
        return bytes(made.stdin) == b"words\n"

    await until(came)
    await prime.call("SendSignal", "SendSignalRequest", {"session": {"session_uuid": UUID}, "signal": "SIGNAL_SIGKILL"})
    await running


async def test_a_bridge_that_ends_leaves_no_command_of_nobody(fake: FakeGateway) -> None:
    async with prime_speaking.bridging(fake) as prime:
        await prime.create()
        writers: list[asyncio.StreamWriter] = []
        options: list[dict[str, str]] = [{}, {"session_uuid": UUID}]
        for uuid in options:
            data = enveloped(
                SESSION["StartRequest"](
                    command=SESSION["CommandSpec"](cmd="cat"), stdin=True, **uuid
                ).SerializeToString()
            )
            head = f"Content-Type: application/connect+proto\r\nContent-Length: {len(data)}"
            writers.append(await raw(prime, f"{SERVICE}/Start", head, data))

        async def both() -> bool:
            return len(fake.processes.execs) == 2

        await until(both)
    of = {UUID in name: made for name, made in fake.processes.execs.items()}
    alone, session = of[False], of[True]
    await until(lambda: ended(alone))
    assert session.result is None
    assert {one["state"] for one in fake.sandboxes.values()} == {"running"}
    for writer in writers:
        writer.close()


PROGRAM = fusion_speaking.PROGRAM


@pytest.fixture
async def fusion(fake: FakeGateway) -> AsyncIterator[fusion_speaking.Speaker]:
    async with fusion_speaking.speaking(fake, at_once=1, waiting=0) as speaker:
        yield speaker


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/run_code", {**PROGRAM, "later": 1}, "later"),
        ("/run_code", {"language": "python"}, "code"),
        ("/run_code", {**PROGRAM, "code": "\ud800"}, "code"),
        ("/run_code", {**PROGRAM, "run_timeout": float("nan")}, "run_timeout"),
        ("/run_code", {**PROGRAM, "run_timeout": 10**400}, "run_timeout"),
        ("/run_code", {**PROGRAM, "files": {"../a\0": "eA=="}}, "files"),
        ("/run_code", {**PROGRAM, "files": {"a": "no base64"}}, "files"),
        ("/run_code", {**PROGRAM, "memory_limit_MB": True}, "memory_limit_MB"),
        ("/run_jupyter", {"cells": [1]}, "cells"),
        ("/run_jupyter", {"cells": ["1"], "kernel": "ir"}, "kernel"),
    ],
)
async def test_what_fusions_clients_ask_wrong_is_told_by_its_place_and_makes_nothing(
    fake: FakeGateway, fusion: fusion_speaking.Speaker, path: str, body: Any, place: str
) -> None:
    answer = await fusion.ask("POST", path, json=body)
    assert (answer.status, answer.json["detail"][0]["loc"][1]) == (422, place)
    assert fake.sandboxes == {}


async def begin(fusion: fusion_speaking.Speaker, length: int, data: bytes) -> asyncio.StreamWriter:
    """Send the beginning of a request, and read nothing of the answer."""
    at = urlsplit(fusion.url)
    _, writer = await asyncio.open_connection(at.hostname, at.port, limit=2**10)
    head = f"Host: x\r\nAuthorization: Bearer {API_KEY}\r\nContent-Type: application/json\r\nContent-Length: {length}"
    writer.write(f"POST /run_code HTTP/1.1\r\n{head}\r\n\r\n".encode() + data)
    await writer.drain()
    return writer


async def test_half_a_request_runs_nothing_and_gives_its_place_back(
    fake: FakeGateway, fusion: fusion_speaking.Speaker
) -> None:
    writer = await begin(fusion, 1000, b'{"code": "print(')
    # It holds the one place while its body comes.
    await until(lambda: busy(fusion))
    assert fake.sandboxes == {}
    writer.transport.abort()
    await until(lambda: served(fusion))
    assert len(fake.sandboxes) == 1


async def busy(fusion: fusion_speaking.Speaker) -> bool:
    return (await fusion.ask("POST", "/run_code", json={})).status == 504


async def served(fusion: fusion_speaking.Speaker) -> bool:
    return (await fusion.run()).status == 200


async def test_an_answer_that_nobody_reads_holds_no_sandbox(fake: FakeGateway, fusion: fusion_speaking.Speaker) -> None:
    data = json.dumps({**PROGRAM, "stdin": "x" * 2**20}).encode()
    writer = await begin(fusion, len(data), data)

    async def over() -> bool:
        return bool(fake.sandboxes) and all(one["state"] == "ended" for one in fake.sandboxes.values())

    await until(over)
    writer.transport.abort()
    await until(lambda: served(fusion))


async def test_a_bridge_that_ends_under_a_program_leaves_no_sandbox(
    fake: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(languages.RECIPES, "lua", Recipe("program.lua", ("hold",)))
    async with fusion_speaking.speaking(fake) as fusion:
        data = json.dumps({**PROGRAM, "language": "lua"}).encode()
        writer = await begin(fusion, len(data), data)
        await fake.holding.wait()
    assert {one["state"] for one in fake.sandboxes.values()} == {"ended"}
    writer.close()


async def test_a_failure_of_fusions_bridge_itself_is_told(
    fusion: fusion_speaking.Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollbox_bridges.fusion.server.run", None)
    answer = await fusion.run()
    assert (answer.status, "the bridge has failed" in answer.json["detail"]) == (500, True)
