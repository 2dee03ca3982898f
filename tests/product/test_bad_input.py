"""What cannot work is refused with an error that names it, before anything happens."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from typing import Any
from uuid import uuid4

import aiohttp
import jwt
import pytest

from rollbox import Client, Sandbox
from rollbox.errors import (
    BY_CODE,
    Conflict,
    Deleted,
    InvalidArgument,
    SandboxNotFound,
    Unauthenticated,
)
from tests.support.agent_calls import forged
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import until
from tests.support.wire import raw, token_of


@pytest.mark.parametrize(
    ("argv", "options", "reason"),
    [
        (["no-such-command"], {}, "command_not_found"),
        (["/no/such/command"], {}, "command_not_found"),
        (["/etc/passwd"], {}, "not_executable"),
        (["/usr"], {}, "not_executable"),
        (["true"], {"cwd": "/no/such/folder"}, "cwd_not_found"),
        (["true"], {"user": "nosuchuser"}, "user_not_found"),
    ],
)
async def test_what_is_not_there(shared: Sandbox, argv: list[str], options: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await shared.exec(argv, **options)  # type: ignore[arg-type]
    assert refused.value.details["reason"] == reason
    assert next(iter(options.values()), argv[0]) in str(refused.value)
    assert not refused.value.is_infra


@pytest.mark.parametrize("command", ["", [], ["a\0b"], "a\0b", ["\udcff"]])
async def test_commands_that_make_no_sense(shared: Sandbox, command: Any) -> None:
    with pytest.raises(InvalidArgument):
        await shared.exec(command)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"{", "line 1"),
        (b"[]", ""),
        (b"", ""),
        (b'{"argv": ["true"], "shell": true}', "shell"),
        (b'{"argv": "true"}', "argv"),
        (b'{"argv": ["true"], "command": "true"}', "command"),
        (b"{}", "argv"),
        (b'{"argv": [""]}', ""),
        (b'{"argv": ["a\\u0000b"]}', ""),
        (b'{"argv": ["true"], "exec_id": "not an id"}', "exec_id"),
        (b'{"argv": ["true"], "timeout_ms": -1}', "timeout_ms"),
        (b'{"argv": ["true"], "max_output_bytes": 99999999999}', "max_output_bytes"),
        (b'{"argv": ["true"], "stdin": "%%%", "stdin_encoding": "base64"}', "stdin"),
        (b'{"argv": ["\xff\xfe"]}', ""),
        (b'{"argv": ["true"], "env": {"A=B": "x"}}', "A=B"),
    ],
)
async def test_malformed_exec_requests(stack: Product, shared: Sandbox, body: bytes, names: str) -> None:
    token = await token_of(stack, shared.id)
    status, problem = await raw(stack, "POST", f"/v1/sandboxes/{shared.id}/exec", token, body)
    assert (status, problem["code"], problem["fault"]) == (400, "invalid_argument", "caller")
    assert names in problem["detail"]


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"{", ""),
        (b"{}", "image"),
        (b'{"image": ""}', "image"),
        (b'{"image": "a b"}', "image"),
        (b'{"image": "x", "tpu": 1}', "tpu"),
        (b'{"image": "x", "ttl_ms": 0}', "ttl_ms"),
        (b'{"image": "x", "memory_bytes": {"request": 2147483648, "limit": 1073741824}}', "memory_bytes"),
        (b'{"image": "x", "labels": {"": "v"}}', "labels"),
    ],
)
async def test_malformed_create_requests(stack: Product, body: bytes, names: str) -> None:
    status, problem = await raw(stack, "POST", "/v1/sandboxes", stack.api_key, body)
    assert (status, problem["code"]) == (400, "invalid_argument")
    assert names in problem["detail"]


async def test_a_body_above_the_limit(stack: Product, shared: Sandbox) -> None:
    token = await token_of(stack, shared.id)
    body = json.dumps({"argv": ["true"], "stdin": "x" * 40_000_000}).encode()
    try:
        status, problem = await raw(stack, "POST", f"/v1/sandboxes/{shared.id}/exec", token, body)
    except aiohttp.ClientConnectionError:
        # A server may close the connection before it has read what it refuses.
        pytest.fail("the refusal of a large body must reach the client")
    assert (status, problem["code"]) == (413, "payload_too_large")
    # The SDK does not send it with the request.
    assert (await shared.exec(["true"], stdin=b"x" * 40_000_000)).ok


async def test_large_and_deep_bodies_for_the_control_plane(stack: Product) -> None:
    large = json.dumps({"image": "x" * 40_000_000}).encode()
    status, problem = await raw(stack, "POST", "/v1/sandboxes", stack.api_key, large)
    assert (status, problem["code"]) == (413, "payload_too_large")
    deep = b'{"image": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    status, problem = await raw(stack, "POST", "/v1/sandboxes", stack.api_key, deep)
    assert (status, problem["code"]) == (400, "invalid_argument")
    assert "body" in problem["detail"]


async def test_a_deep_body_of_an_exec(stack: Product, shared: Sandbox) -> None:
    token = await token_of(stack, shared.id)
    deep = b'{"argv": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    status, problem = await raw(stack, "POST", f"/v1/sandboxes/{shared.id}/exec", token, deep)
    assert (status, problem["code"]) == (400, "invalid_argument")
    assert (await shared.exec("echo alive")).stdout == "alive\n"


async def test_a_client_that_does_not_read_its_answer_holds_nobody(stack: Product, shared: Sandbox) -> None:
    token = await token_of(stack, shared.id)
    host, port = stack.url.removeprefix("http://").split(":")
    body = b'{"command": "head -c 4000000 /dev/zero"}'
    head = f"POST /v1/sandboxes/{shared.id}/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    with contextlib.ExitStack() as slow:
        for _ in range(8):
            connection = slow.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(30):
            results = await asyncio.gather(*(shared.exec(["echo", str(n)]) for n in range(50)))
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(50)]


async def test_a_body_that_never_ends_does_not_hold_the_sandbox(stack: Product, shared: Sandbox) -> None:
    token = await token_of(stack, shared.id)
    host, port = stack.url.removeprefix("http://").split(":")
    head = f"POST /v1/sandboxes/{shared.id}/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    slow = [socket.create_connection((host, int(port))) for _ in range(100)]
    for connection in slow:
        connection.sendall(f'{head}Content-Length: 1000\r\n\r\n{{"argv'.encode())
    assert (await shared.exec("echo served")).stdout == "served\n"
    for connection in slow:
        connection.close()


async def test_tokens_that_are_wrong_or_of_another(stack: Product, shared: Sandbox) -> None:
    body = b'{"argv": ["true"]}'
    path = f"/v1/sandboxes/{shared.id}/exec"
    good = await token_of(stack, shared.id)
    head, claims, signature = good.split(".")
    padded = claims + "=" * (-len(claims) % 4)
    later = {**json.loads(base64.urlsafe_b64decode(padded)), "exp": 4102444800}
    altered = base64.urlsafe_b64encode(json.dumps(later).encode()).decode().rstrip("=")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    bad = ["", "nonsense", stack.api_key, f"{head}.{altered}.{signature}", f"{none}.{claims}.", good[:-8] + "AAAAAAAA"]
    for token in bad:
        status, problem = await raw(stack, "POST", path, token, body)
        assert (status, problem["code"]) == (401, "unauthenticated"), token
    another, _ = (await forged(stack, shared))["of another sandbox"]
    status, problem = await raw(stack, "POST", path, str(another), body)
    assert (status, problem["code"]) == (403, "permission_denied")


async def test_a_token_that_has_expired(stack: Product, shared: Sandbox) -> None:
    """Signed with the right key, for this sandbox, an hour ago: refused by the gateway, renewed by the SDK."""
    _, claims, _ = (await token_of(stack, shared.id)).split(".")
    held = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    private = await stack.signing_key()
    expired = jwt.encode({**held, "iat": held["iat"] - 7200, "exp": held["iat"] - 3600}, private, "EdDSA")
    path = f"/v1/sandboxes/{shared.id}/exec"
    status, problem = await raw(stack, "POST", path, expired, b'{"argv": ["true"]}')
    assert (status, problem["code"]) == (401, "unauthenticated")
    assert "expired" in problem["detail"]
    shared._access.token = expired
    assert (await shared.exec("echo renewed")).stdout == "renewed\n"
    assert shared._access.token != expired


async def test_a_wrong_api_key(stack: Product) -> None:
    async with Client(stack.url, "rbx_wrong") as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.list()


async def test_ids_that_do_not_exist(stack: Product, client: Client, shared: Sandbox) -> None:
    with pytest.raises(SandboxNotFound):
        await client.connect("sb-0000000000000000")
    with pytest.raises(SandboxNotFound):
        await client.get("sb-0000000000000000")
    token = await token_of(stack, shared.id)
    status, problem = await raw(stack, "DELETE", f"/v1/sandboxes/{shared.id}/execs/unknown", token, b"")
    assert (status, problem["code"]) == (404, "exec_not_found")
    status, problem = await raw(stack, "GET", "/v1/no/such/path", stack.api_key, b"")
    assert status == 404
    assert problem["code"] in BY_CODE


async def test_the_same_key_gives_the_same_sandbox_and_it_is_deleted_twice_and_used_after_that(client: Client) -> None:
    key = uuid4().hex
    sandbox, second = await asyncio.gather(*(client.create(IMAGE, idempotency_key=key) for _ in range(2)))
    third = await client.create(IMAGE, idempotency_key=key)
    assert sandbox.id == second.id == third.id
    with pytest.raises(Conflict):
        await client.create(IMAGE, idempotency_key=key, memory="64Mi")
    again = await client.connect(sandbox.id)
    await sandbox.delete()
    await sandbox.delete()
    await again.delete(wait=True)
    with pytest.raises(Deleted):
        await sandbox.exec(["true"])
    with pytest.raises(Deleted) as gone:
        await (await client.connect(sandbox.id)).exec(["true"])
    assert not gone.value.is_infra
    record = await client.get(sandbox.id)
    assert record.state == "ended"


async def test_delete_while_starting(client: Client) -> None:
    async def met() -> bool:
        """Whether the delete came in time: a start may be over before, if the test stands still for a moment."""
        key = uuid4().hex
        creating = asyncio.create_task(client.create(IMAGE, idempotency_key=key, labels={"race": key}))
        seen = await until(lambda: client.list({"race": key}))
        await client.delete(*(record.id for record in seen))
        try:
            await creating
        except Deleted:
            return True
        return False

    await until(met)


async def test_a_cancelled_create_leaves_nothing(client: Client) -> None:
    run = uuid4().hex
    creating = asyncio.create_task(client.create(IMAGE, labels={"run": run}))
    await until(lambda: client.list({"run": run}))
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating

    async def nothing_is_left() -> bool:
        return await client.list({"run": run}) == []

    # The cancelled call waits for its delete for 2 s; a cluster may take longer.
    await until(nothing_is_left)
