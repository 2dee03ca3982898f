"""The network policy of a sandbox: what it reaches, and whether that is in force."""

from __future__ import annotations

from aiohttp import web

from rollbox import EgressState, errors
from rollbox_bridges.bodies import json_object
from rollbox_bridges.prime.calls import Call
from rollbox_bridges.prime.network import lists_of, policy_of
from rollbox_bridges.prime.words import Refusal

_FIELDS = frozenset({"allowlist", "denylist"})


async def get(call: Call) -> web.StreamResponse:
    """Tell the policy."""
    return _told(await (await call.session()).sandbox.egress())


async def put(call: Call) -> web.StreamResponse:
    """Replace the policy; the answer says whether that is in force, for which clients ask again otherwise."""
    body = await json_object(call.request, _FIELDS)
    policy = policy_of(body.get("allowlist"), body.get("denylist"))
    if policy is None:
        raise Refusal(400, "neither an allowlist nor a denylist is given: an empty denylist allows all")
    sandbox = (await call.session()).sandbox
    try:
        state = await sandbox.egress("offline" if policy.mode == "none" else policy)
    except errors.EgressUnavailable:
        # The switch is on record, and nobody has said that it is in force.
        state = await sandbox.egress()
    return _told(state)


def _told(state: EgressState) -> web.Response:
    applied = state.revision if state.applied else state.revision - 1
    told = {"policy": lists_of(state).to_json(), "generation": state.revision, "applied_generation": applied}
    return web.json_response({**told, "applied": state.applied})
