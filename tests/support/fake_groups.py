"""The groups of the fake gateway: sandboxes under the keys NAME/0, NAME/1, ..., as the control plane makes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support.fake_problems import problem

if TYPE_CHECKING:
    from tests.support.gateway_fake import FakeGateway

GROUP, SAMPLE = "rollbox.group", "rollbox.sample"


async def create(fake: FakeGateway, request: web.Request) -> web.Response:
    """Make all, or some; `fake.faults["sample"]` fails them in order (an empty code fails none)."""
    name, body = request.match_info["name"], await request.json()
    fake.bodies.append(body)
    members = []
    for sample in range(body["count"]):
        fault = fake.faults["sample"].popleft() if fake.faults["sample"] else None
        labels = {**body["sandbox"].get("labels", {}), GROUP: name, SAMPLE: str(sample)}
        if fault is not None and fault.code:
            told: dict[str, Any] = {"code": fault.code, "request_id": "req-1", "details": fault.details}
            told["detail"] = f"sample {sample} fails with {fault.code}"
            members.append({"sample": sample, "sandbox": None, "problem": told})
        else:
            wish, call_id = {**body["sandbox"], "labels": labels}, request.headers.get("Call-Id", "")
            answer = await fake.made(wish, f"{name}/{sample}", call_id)
            members.append(_member(sample, json.loads(answer.body or b"{}"), answer.status))  # type: ignore[arg-type]
    failed = [member["problem"] for member in members if member["problem"]]
    if failed and not body["partial"]:
        _end_all(fake, name)
        return web.json_response(failed[0], status=500, content_type="application/problem+json")
    return web.json_response({"name": name, "members": members})


async def get(fake: FakeGateway, request: web.Request) -> web.Response:
    """Tell what there is of a group."""
    name = request.match_info["name"]
    boxes = [box for box in fake.sandboxes.values() if box["labels"].get(GROUP) == name]
    if not boxes:
        return problem("not_found", f"there is no group {name}")
    return web.json_response({"name": name, "members": [_found(fake, box) for box in boxes]})


async def delete(fake: FakeGateway, request: web.Request) -> web.Response:
    """End all, or take back what one call has asked for."""
    name, call_id = request.match_info["name"], request.headers.get("Call-Id")
    if call_id is None:
        return web.json_response({"deleted": _end_all(fake, name), "failed": []})
    keys = (f"{name}/{sample}" for sample in range(int(request.query["count"])))
    ended = [sandbox_id for key in keys for sandbox_id in fake.withdraw(key, call_id)]
    for sandbox_id in ended:
        fake.end(sandbox_id)
    return web.json_response({"deleted": ended, "failed": []})


def _end_all(fake: FakeGateway, name: str) -> list[str]:
    boxes = [box for box in fake.sandboxes.values() if box["labels"].get(GROUP) == name and box["state"] != "ended"]
    for box in boxes:
        fake.end(box["id"])
    return [box["id"] for box in boxes]


def _found(fake: FakeGateway, box: dict[str, Any]) -> dict[str, Any]:
    sample = int(box["labels"][SAMPLE])
    if box["end"]:
        told = {"code": box["end"]["cause"], "detail": box["end"]["detail"]}
        return {"sample": sample, "sandbox": None, "problem": told}
    return {"sample": sample, "sandbox": {**box, "token": fake.tokens[box["id"]]}, "problem": None}


def _member(sample: int, body: dict[str, Any], status: int) -> dict[str, Any]:
    made = status < 300
    return {"sample": sample, "sandbox": body if made else None, "problem": None if made else body}
