"""What a sandbox tries of egress, and what `rollbox doctor` and the chart's test say of that."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from rollbox.egress_check import METADATA, Found, Place, __main__, check, judged, sandboxed, tries
from rollbox.egress_check.tries import Seen
from rollbox.errors import EgressUnavailable
from tests.support.gateway_fake import FakeGateway, Fault

IMAGE = "python:3.12-slim"
PROBE = Place("allowed host", "index.test", 8443)
DENIED = {
    "code": "egress_denied",
    "detail": "the network policy of this sandbox is `offline`: no connection is allowed",
}
OFFLINE = Seen(0.01, 403, **DENIED)
WELL = {"direct connection": Seen(0.1, error="unreachable"), "name look-up": Seen(0.01, error="no"), "refusal": OFFLINE}


def names(found: list[Found], *, ok: bool) -> list[str]:
    return [one.name for one in found if one.ok is ok]


def test_a_sandbox_that_reaches_nothing_is_well() -> None:
    found = [*judged.offline(WELL)]
    assert names(found, ok=True) == ["direct connection", "name look-up", "refusal"]
    assert not any(one.fix for one in found)


@pytest.mark.parametrize(
    ("name", "seen", "said", "fix"),
    [
        ("direct connection", Seen(0.1), "reaches 1.1.1.1:443 past the proxy", judged.POLICIES),
        ("name look-up", Seen(0.1), "resolves names by itself", judged.RESOLVER),
        ("name look-up", Seen(20, error="timed out"), "fails in 20.00 s: programs wait for it", judged.RESOLVER),
        ("refusal", Seen(0.1, 200), "reaches a host under `offline`", judged.LINK),
        ("refusal", Seen(0.1, 503, "egress_unavailable", "lost"), "503 egress_unavailable lost", judged.PROXY),
        ("refusal", Seen(0.1, error="HTTPS_PROXY is not set"), "HTTPS_PROXY is not set", judged.PROXY),
        ("refusal", Seen(3, 403, **DENIED), "answers 403 in 3.00 s: that is slow", judged.PROXY),
    ],
)
def test_what_is_wrong_under_offline_is_told_with_what_to_do(name: str, seen: Seen, said: str, fix: str) -> None:
    (found,) = [one for one in judged.offline({**WELL, name: seen}) if not one.ok]
    assert (found.name, found.fix) == (name, fix)
    assert said in found.detail


@pytest.mark.parametrize(
    ("seen", "ok", "said"),
    [
        (Seen(0.1, 403, "egress_denied", "169.254.169.254:80: never/link-local"), True, "refused under `open`: 169"),
        (Seen(0.1, 200), False, "a sandbox reaches the metadata service (169.254.169.254:80) through egress"),
        (Seen(10, 502, "egress_unreachable", "no answer"), False, "only the network has stopped it"),
        (Seen(10, 503, "egress_unavailable", "lost"), False, "503 egress_unavailable lost"),
        (Seen(0.1, 502, "port_unreachable", "the sandbox itself"), True, "not reached: the sandbox itself"),
    ],
)
def test_what_is_inside_must_be_refused_and_not_only_be_silent(seen: Seen, ok: bool, said: str) -> None:
    (found,) = judged.inside([METADATA], {METADATA.name: seen})
    assert (found.ok, said in found.detail, bool(found.fix)) == (ok, True, not ok)


@pytest.mark.parametrize(
    ("seen", "ok", "said"),
    [
        (Seen(0.04, 200), True, "answers through egress in 0.04 s"),
        (Seen(0.04, 404, "", "index.crates.io is no index of this package cache"), True, "answers through egress"),
        (Seen(0.04, 403, "egress_denied", "no part of this installation"), True, "not installed"),
        (Seen(9, 503, "egress_unavailable", "the package cache does not answer: timed out"), False, "timed out"),
        (Seen(9, 502, "egress_unreachable", "the server gave no answer in HTTP"), False, "no answer in HTTP"),
        (Seen(0.04, error="the proxy gave no answer that can be read"), False, "no answer that can be read"),
    ],
)
def test_a_package_cache_that_is_there_must_answer(seen: Seen, ok: bool, said: str) -> None:
    found = judged.cache({"package cache": seen})
    assert (found.name, found.ok, found.fix) == ("package cache", ok, "" if ok else judged.CACHE)
    assert said in found.detail


@pytest.mark.parametrize(
    ("seen", "ok", "fix"),
    [
        (Seen(0.04, 200), True, ""),
        (Seen(0.04, 200, error="no TLS"), False, judged.SERVER),
        (Seen(0.04, 403, "egress_denied", "index.test:8443: 10.0.0.9 is private"), False, judged.PRIVATE),
        (Seen(5, 502, "egress_unreachable", "index.test:8443: the name has no address"), False, judged.NAME_SERVER),
        (
            Seen(9, 502, "egress_unreachable", "index.test:8443: 10.1.1.1 does not answer: timed out"),
            False,
            judged.SERVER,
        ),
        (Seen(9, 503, "egress_unavailable", "lost"), False, judged.LINK),
    ],
)
def test_an_allowed_host_that_is_not_reached_is_told_with_what_to_do(seen: Seen, ok: bool, fix: str) -> None:
    found = judged.allowed(PROBE, seen)
    assert (found.ok, found.fix) == (ok, fix)
    assert "index.test:8443" in found.detail


def test_places_are_read_and_a_gateway_is_one_where_its_address_is_private() -> None:
    assert tries.place("p", "index.test") == Place("p", "index.test", 443)
    assert tries.place("p", "[fd00::1]:80").there == "the p ([fd00::1]:80)"
    for text in ("", "http://index.test", "index.test/path", "me@index.test", "index.test:99999"):
        with pytest.raises(ValueError, match=r"HOST:PORT|range"):
            tries.place("p", text)
    assert tries.own("gateway", "http://localhost:7420") == [Place("gateway", "127.0.0.1", 7420)]
    assert tries.own("gateway", "https://10.0.0.7") == [Place("gateway", "10.0.0.7", 443)]
    assert tries.own("gateway", "https://203.0.113.7") == [Place("gateway", "203.0.113.7", 443)]
    assert tries.own("gateway", "https://1.1.1.1") == tries.own("gateway", "https://rollbox.example") == []


class Proxy:
    """Answers `CONNECT` by the policy that a sandbox has at the gateway."""

    def __init__(self, fake: FakeGateway) -> None:
        self.fake = fake
        self.asked: list[tuple[str, str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        mode = next((one["rules"]["mode"] for one in self.fake.egress.states.values()), "offline")
        self.asked.append((mode, place))
        reached = mode == "rules" and place == "index.test:8443"
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if reached else _refused(place if mode != "offline" else "`offline`"))
        writer.close()


def _refused(detail: str) -> bytes:
    body = json.dumps({"code": "egress_denied", "detail": f"{detail} is not allowed"})
    return f"HTTP/1.1 403 Forbidden\r\n\r\n{body}".encode()


@pytest.fixture
async def proxy(fake: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """Where programs of the sandbox, which are real here, find one; nothing of this machine's network is tried."""
    fake.real_execs = True
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refuses = closed.getsockname()
    monkeypatch.setattr(tries, "INTERNET", refuses)
    monkeypatch.setattr(tries, "NAME", "nowhere.invalid")
    monkeypatch.setattr(judged, "AT_ONCE_S", 60.0)
    one = Proxy(fake)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    async with server:
        monkeypatch.setenv("HTTPS_PROXY", "http://{}:{}".format(*server.sockets[0].getsockname()))
        yield one


async def test_a_sandbox_tries_it_under_three_policies(client: Client, proxy: Proxy) -> None:
    async def of(_: object) -> list[Place]:
        return [Place("its node", "10.0.0.9", 10250)]

    found = await check(client, IMAGE, probe=PROBE, inside=[Place("API server", "10.96.0.1", 443)], of=of)
    assert names(found, ok=False) == []
    wanted = ["direct connection", "name look-up", "refusal", "metadata service", "API server", "its node"]
    assert names(found, ok=True) == [*wanted, "package cache", "allowed host"]
    assert set(proxy.asked) == {
        ("offline", "nowhere.invalid:443"),
        ("open", "169.254.169.254:80"),
        ("open", "10.96.0.1:443"),
        ("open", "10.0.0.9:10250"),
        ("open", "http://packages.rollbox.internal/index.crates.io/config.json"),
        ("rules", "index.test:8443"),
    }
    assert not await client.list()


async def test_a_policy_that_is_not_in_force_in_time_is_told_and_ends_it(
    client: Client, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*_: object, **__: object) -> None:
        raise EgressUnavailable("no egress replica is connected")

    monkeypatch.setattr(Sandbox, "egress", late)
    found = await check(client, IMAGE, probe=PROBE)
    assert found[-1] == Found("policy switch", False, "no egress replica is connected", judged.LINK)
    assert names(found, ok=False) == ["policy switch"]
    assert {mode for mode, _ in proxy.asked} == {"offline"}


async def test_where_egress_is_absent_no_sandbox_is_made(client: Client, fake: FakeGateway) -> None:
    fake.fail("egress", Fault("unsupported"))
    assert await check(client, IMAGE) == [Found("", True, sandboxed.ABSENT)]
    assert "--image" in (await check(client, ""))[0].detail
    assert not fake.asked


async def test_an_image_without_python_has_tried_nothing(client: Client, fake: FakeGateway) -> None:
    (found,) = await check(client, IMAGE)
    assert (found.ok, found.detail[:9]) == (False, "not tried")
    assert "python3" in found.fix


async def test_a_start_that_fails_is_told(client: Client, fake: FakeGateway) -> None:
    fake.fail("create", Fault("image_not_found"))
    (found,) = await check(client, IMAGE)
    assert not found.ok
    assert "no sandbox came that far" in found.detail


def test_a_pod_of_the_doctor_writes_what_it_found(
    apart: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text("tests:rbx_test,others:x\nmore:y\n")
    apart.fail("egress", Fault("unsupported"))
    monkeypatch.setenv("KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("IMAGE", IMAGE)
    assert __main__.main([str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out").read_text()) == [
        {"name": "", "ok": True, "detail": sandboxed.ABSENT, "fix": ""}
    ]
