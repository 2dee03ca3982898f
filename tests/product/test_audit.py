"""Audit entries of the real thing: which key, from which address, on which sandbox; for operators alone."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from rollbox import AuditEntry, Client
from rollbox.errors import PermissionDenied, SandboxNotFound
from tests.support.commits import ON_CLUSTER
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import until

SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}


async def test_what_a_key_does_is_told_to_operators(client: Client, stack: Product) -> None:
    made = await client.create_key(f"test-{uuid4().hex[:8]}", ["run"])
    async with Client(stack.url, made.text) as program:
        async with await program.create(IMAGE, env={"TOKEN": "a-secret"}, **SMALL) as sandbox:
            await sandbox.exec("echo a-secret")
        with pytest.raises(SandboxNotFound):
            await program.connect("sb-000000000000")
        with pytest.raises(PermissionDenied):
            await program.audit()

    async def all_told() -> list[AuditEntry]:
        found = await client.audit(key=made.record.id)
        return found if len(found) >= 3 else []

    create, delete, refused = await until(all_told)
    assert [one.action for one in (create, delete)] == ["POST /v1/sandboxes", "DELETE /v1/sandboxes/{sandbox_id}"]
    assert (create.names, create.status, delete.names, delete.status) == ((sandbox.id,), 201, (sandbox.id,), 200)
    assert (refused.names, refused.code) == (("sb-000000000000",), "sandbox_not_found")
    assert all(one.address and one.request_id and one.took_ms >= 0 for one in (create, delete, refused))
    assert ON_CLUSTER or create.address == "127.0.0.1"
    assert "a-secret" not in repr((create, delete, refused))
    assert made.text not in repr((create, delete, refused))
    await client.revoke_key(made.record.id)
    about = [one.action async for one in _about(client, made.record.id)]
    assert about[-1] == "DELETE /v1/keys/{key_id}"


async def _about(client: Client, name: str) -> Any:
    async def told() -> list[AuditEntry]:
        return await client.audit(name=name)

    for one in await until(told):
        yield one
