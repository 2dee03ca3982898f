"""Audit entries in the SDK and on the command line."""

from __future__ import annotations

import pytest

from rollbox import Client, sync
from rollbox.errors import PermissionDenied
from tests.support.forked_commands import forked
from tests.support.gateway_fake import API_KEY, FakeGateway, Fault, serving_apart


async def test_entries_are_read_and_asked_for_by_what_they_are_about(client: Client, fake: FakeGateway) -> None:
    fake.audit.add("POST /v1/sandboxes", "sb-1", status=201)
    (entry,) = await client.audit(after_ms=7, owner="me", key="key-1", name="sb-1", request_id="req-1", most=5)
    assert (entry.action, entry.names, entry.status, entry.key_id) == ("POST /v1/sandboxes", ("sb-1",), 201, "key-1")
    wanted = {"owner": "me", "key_id": "key-1", "name": "sb-1", "request_id": "req-1", "after_ms": "7", "most": "5"}
    assert fake.audit.asked == [wanted]
    assert len(await client.audit()) == 1
    assert fake.audit.asked[-1] == {"after_ms": "0", "most": "1000"}
    fake.fail("audit", Fault("permission_denied"))
    with pytest.raises(PermissionDenied):
        await client.audit()


def test_without_await_and_on_the_command_line() -> None:
    with serving_apart() as fake, sync.Client(fake.url, API_KEY) as client:
        fake.audit.add("DELETE /v1/sandboxes", *(f"sb-{number}" for number in range(5)))
        fake.audit.add("PUT /v1/quotas/{name}", "team", status=403, code="permission_denied", at_ms=2_000)
        assert [one.code for one in client.audit()] == ["", "permission_denied"]
        settings = {"ROLLBOX_URL": fake.url, "ROLLBOX_API_KEY": API_KEY}
        ((code, stdout, stderr),) = forked([("as they are", settings, ["audit", "--name", "sb-1", "--since", "1h"])])
        assert (code, stderr) == (0, "")
        assert fake.audit.asked[-1]["name"] == "sb-1"
        assert int(fake.audit.asked[-1]["after_ms"]) > 1_600_000_000_000
        first, second = stdout.splitlines()[-2:]
        assert "sb-0 sb-1 sb-2 +2" in first
        assert "403 permission_denied" in second
