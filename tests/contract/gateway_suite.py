"""What every gateway answers: the real one and the fake of the SDK's tests both pass this suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from rollbox import Client
from rollbox.errors import BY_CODE

Answer = tuple[int, Any]
# The label of the sandbox that tests of a suite share; whoever runs it on a product deletes what has it.
LASTING = f"lasting-{uuid4().hex}"


class Api:
    """The HTTP API of a gateway, as a client without the SDK sees it."""

    def __init__(self, session: aiohttp.ClientSession, url: str, api_key: str, body: dict[str, Any]) -> None:
        self.api_key = api_key
        self.run = uuid4().hex
        self._session = session
        self._url = url
        self._body = {**body, "labels": {"run": self.run}}

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        /,
        *,
        credential: str | None = None,
        headers: dict[str, str] | None = None,
        **query: str,
    ) -> Answer:
        """Send one request; returns status and JSON."""
        sent = {"Authorization": f"Bearer {credential or self.api_key}", **(headers or {})}
        url = f"{self._url}/v1/{path}"
        async with self._session.request(method, url, json=body, headers=sent, params=query) as response:
            return response.status, await response.json(content_type=None)

    async def create(self, key: str | None = None, call_id: str | None = None, **more: Any) -> Answer:
        headers = {"Idempotency-Key": key or uuid4().hex, "Call-Id": call_id or uuid4().hex}
        return await self.call("POST", "sandboxes", {**self._body, **more}, headers=headers)

    async def sandbox(self) -> tuple[str, str]:
        """Create one; returns its id and its token."""
        status, made = await self.create()
        assert status == 201, made
        return made["id"], made["token"]

    async def lasting(self) -> tuple[str, str]:
        """The one that tests share which neither end it nor leave anything in it: its id and a token."""
        _, found = await self.call("GET", "sandboxes", label=f"suite={LASTING}")
        for one in found["sandboxes"]:
            if one["state"] == "running":
                return one["id"], (await self.call("POST", f"sandboxes/{one['id']}/token"))[1]["token"]
        status, made = await self.create(labels={"suite": LASTING})
        assert status == 201, made
        return made["id"], made["token"]


def refused(answer: Answer, code: str, http: int) -> None:
    """Assert that an answer is the problem of a code, with all that the contract says of it."""
    status, problem = answer
    kind = BY_CODE[code]
    assert (status, problem["code"]) == (http, code), problem
    assert problem["detail"]
    assert problem["request_id"]
    assert (problem["fault"], problem["retry"], problem["mask_sample"]) == (kind.fault, kind.retry, kind.mask_sample)


async def _none_runs(api: Api, sandboxes: list[tuple[str, str]]) -> None:
    """Assert that an exec in each of these is refused, since they were deleted."""
    for sandbox_id, token in sandboxes:
        command = {"exec_id": uuid4().hex, "command": "true"}
        refused(await api.call("POST", f"sandboxes/{sandbox_id}/exec", command, credential=token), "deleted", 410)


class GatewaySuite:
    """Subclasses have the fixtures `url`, `api_key` and `image`."""

    @pytest.fixture
    async def api(self, url: str, api_key: str, image: str) -> AsyncIterator[Api]:
        body = {"image": image, "cpu_millicores": {"request": 20, "limit": 1000}, "ttl_ms": 600_000}
        body["memory_bytes"] = {"request": 2**25, "limit": 2**27}
        async with aiohttp.ClientSession() as session, Client(url, api_key) as client:
            made = Api(session, url, api_key, body)
            yield made
            await client.delete(labels={"run": made.run})

    async def test_a_create_is_repeated_by_its_key_and_only_a_call_that_is_withdrawn_loses_its_sandbox(
        self, api: Api
    ) -> None:
        key, one, other = uuid4().hex, uuid4().hex, uuid4().hex
        status, made = await api.create(key, one)
        assert (status, made["state"], made["end"]) == (201, "running", None)
        again, same = await api.create(key, other)
        assert (again, same["id"]) == (200, made["id"])
        refused(await api.create(key, ttl_ms=700_000), "conflict", 409)
        await api.call("DELETE", "sandboxes", headers={"Call-Id": one}, idempotency_key=key)
        assert (await api.call("GET", f"sandboxes/{made['id']}"))[1]["state"] == "running"

    async def test_a_create_that_was_withdrawn_stays_so(self, api: Api) -> None:
        key, call_id = uuid4().hex, uuid4().hex
        headers = {"Call-Id": call_id}
        assert (await api.call("DELETE", "sandboxes", headers=headers, idempotency_key=key))[0] == 200
        refused(await api.create(key, call_id), "deleted", 410)

    async def test_credentials_are_checked(self, api: Api) -> None:
        sandbox_id, _ = await api.lasting()
        refused(await api.call("GET", "sandboxes", credential="rbx_wrong"), "unauthenticated", 401)
        command = {"exec_id": uuid4().hex, "command": "true"}
        refused(await api.call("POST", f"sandboxes/{sandbox_id}/exec", command, credential="x"), "unauthenticated", 401)
        status, opened = await api.call("POST", f"sandboxes/{sandbox_id}/token")
        assert (status, opened["id"]) == (200, sandbox_id)
        path = f"sandboxes/{sandbox_id}/exec"
        assert (await api.call("POST", path, command, credential=opened["token"]))[0] == 200

    async def test_what_is_not_there_is_not_found(self, api: Api) -> None:
        unknown = f"sb-{uuid4().hex}"
        refused(await api.call("GET", f"sandboxes/{unknown}"), "sandbox_not_found", 404)
        refused(await api.call("DELETE", f"sandboxes/{unknown}"), "sandbox_not_found", 404)
        refused(await api.call("POST", f"sandboxes/{unknown}/extend", {"ttl_ms": 60_000}), "sandbox_not_found", 404)
        refused(await api.call("POST", f"sandboxes/{unknown}/token"), "sandbox_not_found", 404)
        refused(await api.call("GET", f"sandboxes/{unknown}/timeline"), "sandbox_not_found", 404)
        refused(await api.call("GET", f"groups/{uuid4().hex}"), "not_found", 404)
        refused(await api.call("GET", f"pools/{uuid4().hex}"), "not_found", 404)

    async def test_deletes_by_id_and_label_end_calls_and_lists_have_what_has_not_ended_or_all(self, api: Api) -> None:
        first, *others = [await api.sandbox() for _ in range(3)]
        left = {sandbox_id for sandbox_id, _ in others}
        for _ in range(2):
            status, record = await api.call("DELETE", f"sandboxes/{first[0]}")
            assert (status, record["end"]["cause"], record["end"]["mask_sample"]) == (200, "deleted", True)
        await _none_runs(api, [first])
        label = f"run={api.run}"
        _, some = await api.call("GET", "sandboxes", label=label)
        assert {one["id"] for one in some["sandboxes"] if one["state"] == "running"} == left
        _, every = await api.call("GET", "sandboxes", label=label, all="true")
        assert {one["id"] for one in every["sandboxes"]} == {first[0], *left}
        status, deleted = await api.call("DELETE", "sandboxes", label=label)
        assert (status, deleted["failed"]) == (200, [])
        assert left <= {*deleted["deleted"]} <= {first[0], *left}
        await _none_runs(api, others)

    async def test_an_extension_moves_the_end_and_brings_a_token(self, api: Api) -> None:
        sandbox_id, _ = await api.lasting()
        _, before = await api.call("GET", f"sandboxes/{sandbox_id}")
        status, after = await api.call("POST", f"sandboxes/{sandbox_id}/extend", {"ttl_ms": 3_600_000})
        assert status == 200
        assert after["expires_at_ms"] > before["expires_at_ms"]
        assert after["token"]

    async def test_leases_come_and_go(self, api: Api) -> None:
        sandbox_id, _ = await api.lasting()
        lease = {"name": uuid4().hex, "ttl_ms": 600_000}
        assert (await api.call("PUT", f"sandboxes/{sandbox_id}/lease", lease))[1]["lease"]["name"] == lease["name"]
        status, renewed = await api.call("POST", f"leases/{lease['name']}", {"ttl_ms": 600_000})
        assert (status, renewed["sandboxes"]) == (200, 1)
        assert (await api.call("DELETE", f"sandboxes/{sandbox_id}/lease"))[1]["lease"] is None

    async def test_an_exec_runs_once(self, api: Api) -> None:
        sandbox_id, token = await api.lasting()
        command = {"exec_id": uuid4().hex, "command": "cat", "stdin": "hello"}
        path = f"sandboxes/{sandbox_id}/exec"
        status, result = await api.call("POST", path, command, credential=token)
        assert status == 200
        assert (result["end"], result["exit_code"], result["stdout"]) == ("exited", 0, "hello")
        assert result["replayed"] is False
        _, again = await api.call("POST", path, command, credential=token)
        assert {name for name in result if result[name] != again[name]} <= {"replayed", "queue_ms"}
        assert again["replayed"] is True
        refused(await api.call("POST", path, {**command, "stdin": "other"}, credential=token), "conflict", 409)
        path = f"sandboxes/{sandbox_id}/execs/{uuid4().hex}"
        refused(await api.call("DELETE", path, credential=token), "exec_not_found", 404)

    async def test_a_group_is_created_once_and_found_and_no_call_runs_after_its_delete(self, api: Api) -> None:
        name = uuid4().hex
        body = {"count": 2, "partial": False, "sandbox": api._body}
        status, made = await api.call("PUT", f"groups/{name}", body)
        assert status in (200, 201)
        ids = [one["sandbox"]["id"] for one in made["members"]]
        assert [one["sample"] for one in made["members"]] == [0, 1]
        assert [one["sandbox"]["id"] for one in (await api.call("PUT", f"groups/{name}", body))[1]["members"]] == ids
        assert [one["sandbox"]["id"] for one in (await api.call("GET", f"groups/{name}"))[1]["members"]] == ids
        status, deleted = await api.call("DELETE", f"groups/{name}")
        assert (status, sorted(deleted["deleted"]), deleted["failed"]) == (200, sorted(ids), [])
        await _none_runs(api, [(one["sandbox"]["id"], one["sandbox"]["token"]) for one in made["members"]])

    async def test_ports_are_private_until_they_are_made_public(self, api: Api) -> None:
        sandbox_id, token = await api.lasting()
        path = f"sandboxes/{sandbox_id}/ports/8000"
        assert await api.call("GET", path, credential=token) == (200, {"port": 8000, "listening": False})
        assert (await api.call("POST", path, {"visibility": "public"}))[1]["visibility"] == "public"
        assert (await api.call("DELETE", path))[1]["visibility"] == "private"

    async def test_files_are_where_they_were_written(self, api: Api) -> None:
        sandbox_id, token = await api.lasting()
        path = f"/tmp/{uuid4().hex}"
        refused(
            await api.call("GET", f"sandboxes/{sandbox_id}/file/info", credential=token, path=path),
            "file_not_found",
            404,
        )
        status, made = await api.call("POST", f"sandboxes/{sandbox_id}/directory", credential=token, path=path)
        assert (status, made["kind"], made["path"]) == (200, "directory", path)
        _, found = await api.call("GET", f"sandboxes/{sandbox_id}/directory", credential=token, path=path)
        assert found["entries"] == []
        assert (await api.call("DELETE", f"sandboxes/{sandbox_id}/file", credential=token, path=path))[0] == 200

    async def test_use_timeline_and_quota_are_told(self, api: Api) -> None:
        sandbox_id, token = await api.lasting()
        _, used = await api.call("GET", f"sandboxes/{sandbox_id}/usage", credential=token)
        numbers = {"cpu_ms", "memory_bytes", "memory_files_bytes", "memory_limit_bytes", "disk_bytes", "processes"}
        assert numbers <= {*used}
        _, story = await api.call("GET", f"sandboxes/{sandbox_id}/timeline")
        assert {"id", "state", "image", "labels", "end", "summary", "advice", "moments", "expires_at_ms"} <= {*story}
        assert {"at_ms", "after_ms", "state", "word", "text"} <= {*story["moments"][0]}
        _, quota = await api.call("GET", "quota")
        assert {"owner", "declared_for", "limits", "used", "waiting", "queue"} <= {*quota}
