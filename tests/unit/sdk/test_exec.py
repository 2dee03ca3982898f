"""Execs and the failures of a gateway: retries, deadlines, tokens, broken and malformed answers."""

import asyncio

import pytest
from yarl import URL

from rollbox import Client, Sandbox, SandboxError
from rollbox.errors import (
    Deleted,
    InvalidArgument,
    StreamInterrupted,
    Unauthenticated,
    UpstreamTimeout,
)
from tests.support.gateway_fake import API_KEY, FakeGateway, Fault
from tests.unit.sdk.conftest import Clock


@pytest.mark.parametrize(
    "fault",
    [
        Fault(),
        Fault(after=True),
        Fault("stream_interrupted", after=True),
        Fault("draining"),
        Fault("upstream_timeout"),
        Fault("capacity_unavailable"),
        Fault(raw=b"<html>", status=502),
    ],
    ids=lambda fault: f"{fault.code or fault.status}{'-after' if fault.after else ''}",
)
async def test_what_is_safe_is_sent_again_and_runs_once(
    client: Client, fake: FakeGateway, clock: Clock, fault: Fault
) -> None:
    sandbox = await client.create("python")
    fake.fail("exec", fault, fault)
    result = await sandbox.exec("true")
    assert result.ok
    assert fake.count("POST", "/exec") == 3
    assert fake.runs == [result.exec_id]
    assert result.replayed == fault.after
    assert len(clock.waits) == 2


async def test_the_servers_wish_to_wait_is_honoured(client: Client, fake: FakeGateway, clock: Clock) -> None:
    sandbox = await client.create("python")
    fake.fail("exec", Fault("capacity_unavailable", retry_after_ms=7000))
    await sandbox.exec("true")
    assert clock.waits == [7.0]


async def test_a_wish_beyond_the_budget_is_raised(client: Client, fake: FakeGateway, clock: Clock) -> None:
    sandbox = await client.create("python")
    fake.fail("exec", Fault("draining", retry_after_ms=60_000))
    with pytest.raises(SandboxError) as caught:
        await sandbox.exec("true")
    assert caught.value.retry_after_ms == 60_000
    assert clock.waits == []


@pytest.mark.parametrize("code", ["sandbox_lost", "internal", "quota_exceeded", "conflict"])
async def test_other_errors_are_raised_with_the_sandbox(client: Client, fake: FakeGateway, code: str) -> None:
    sandbox = await client.create("python")
    fake.fail("exec", Fault(code))
    with pytest.raises(SandboxError) as caught:
        await sandbox.exec("true")
    assert (caught.value.code, caught.value.sandbox_id, caught.value.request_id) == (code, sandbox.id, "req-1")
    assert fake.count("POST", "/exec") == 1


async def test_a_connection_that_keeps_breaking_is_raised_with_its_cause(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.fail("exec", *[Fault()] * 11)
    with pytest.raises(StreamInterrupted) as caught:
        await sandbox.exec("true")
    assert caught.value.is_infra
    assert caught.value.__cause__ is not None
    assert fake.count("POST", "/exec") == 11


async def test_an_exec_with_a_timeout_ends_soon_after_it_however_often_it_is_repeated(
    client: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await client.create("python")
    limits_s: list[float] = []

    async def send(*_: object, limit_s: float, **__: object) -> None:
        limits_s.append(limit_s)
        await clock.sleep(50)
        raise StreamInterrupted("the gateway is gone")

    monkeypatch.setattr(client.gateway._transport, "send", send)
    began_s = clock.now_s
    with pytest.raises(StreamInterrupted):
        await sandbox.exec("true", timeout=40)
    # The exec's timeout and a minute for the answer, over all attempts.
    assert clock.now_s - began_s <= 101
    assert limits_s == [100, pytest.approx(50, abs=1)]


async def test_an_expired_token_is_renewed_once_for_all_calls(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.expire_tokens()
    results = await asyncio.gather(*(sandbox.exec("true") for _ in range(10)))
    assert all(result.ok for result in results)
    assert fake.count("POST", "/token") == 1
    assert len(fake.runs) == 10


async def test_a_token_that_stays_refused_is_raised(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.fail("exec", Fault("unauthenticated"), Fault("unauthenticated"))
    with pytest.raises(Unauthenticated):
        await sandbox.exec("true")
    assert fake.count("POST", "/exec") == 2


async def test_a_refused_key_is_told_when_the_token_expired(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.expire_tokens()
    fake.fail("token", Fault("unauthenticated"))
    with pytest.raises(Unauthenticated):
        await sandbox.exec("true")


async def test_after_its_own_delete_nothing_is_sent(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    await sandbox.delete()
    sent = len(fake.requests)
    with pytest.raises(Deleted):
        await sandbox.exec("true")
    assert len(fake.requests) == sent


async def test_a_redirect_is_not_followed(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.fail("exec", Fault(raw=b"moved", status=302, location="/v1/info"))
    with pytest.raises(SandboxError, match="302"):
        await sandbox.exec("true")
    assert fake.count("GET", "/v1/info") == 0


async def test_a_silent_server_is_given_up(client: Client, fake: FakeGateway) -> None:
    fake.hold_creates = True
    url = URL(f"{fake.url}/v1/sandboxes")
    with pytest.raises(UpstreamTimeout, match="no answer"):
        await client.gateway._transport.send("POST", url, API_KEY, b"{}", limit_s=0.02)


async def test_an_answer_that_is_no_json_is_of_a_server_that_is_not_rollbox(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.fail("exec", Fault(raw=b"hello", status=200))
    with pytest.raises(SandboxError) as caught:
        await sandbox.exec("true")
    assert (caught.value.code, caught.value.fault) == ("not_found", "caller")
    assert "ROLLBOX_URL" in str(caught.value)


@pytest.mark.parametrize(
    ("command", "hint"), [("ls", "no shell"), (["ls -l"], "without a shell"), (["ls", "-l"], "as the server says")]
)
async def test_a_command_that_is_not_found_has_a_hint_that_fits(
    fake: FakeGateway, monkeypatch: pytest.MonkeyPatch, command: str | list[str], hint: str
) -> None:
    async def refuse(*_: object) -> None:
        raise InvalidArgument("not found", hint="as the server says", details={"reason": "command_not_found"})

    async with await Sandbox.create("python") as sandbox:
        monkeypatch.setattr(sandbox._gateway, "exec", refuse)
        with pytest.raises(InvalidArgument, match=hint):
            await sandbox.exec(command)
