"""A field of a sandbox has to be named in several places; each test here says which place has forgotten it."""

from dataclasses import MISSING, fields, replace

from pydantic_core import from_json

from controlplane.api.schemas import SandboxBody
from controlplane.egress import Binding
from controlplane.model import EndCause, Lease, Moment, Sandbox, SandboxSpec, State, dump_record, load_record
from controlplane.model.states import Change, Event, apply, claim_fields
from controlplane.store import rows
from rollbox.record import SandboxRecord

SPEC = SandboxSpec(image="a", env={"A": "b"}, lease=Lease(name="l", ttl_ms=60_000), labels={"x": "y"})
# Every field says something; see the first test.
FULL = Sandbox(
    id="sb-1",
    owner="alice",
    spec=SPEC,
    created_at_ms=1,
    expires_at_ms=2,
    fingerprint=SPEC.fingerprint(),
    idempotency_key="k",
    state=State.WARM,
    version=3,
    generation=4,
    ready_at_ms=5,
    address="h2c://10.0.0.1:7777",
    kernel="4.4.0",
    end=EndCause("deleted", "d", 6, "alice", {"reason": "cwd_not_found"}),
    timings_ms={"total": 7},
    public_ports=(80,),
    ports_revision=8,
    egress=Binding("custom", "a" * 64, 12, 11, 3),
    pool="p",
    interpreter="python",
    claimed_at_ms=9,
    claim_id="sb-9",
    cold_reason="none ready",
    timeline=(Moment(1, State.QUEUED, "queue"),),
    callers=("c/1",),
    abandoned_at_ms=10,
    settings_digest="d" * 64,
    image_digest="sha256:" + "e" * 64,
    image_ran="sha256:" + "f" * 64,
    image_stale=True,
    image_pulled="full",
    image_pulled_why="it was not converted yet",
    draining_at_ms=11,
    draining_exact=True,
    asked_timeout_ms=90_000,
)
NAMES = {one.name for one in fields(Sandbox)}
# The cluster carries what is known before the start, or once it is claimed. Readiness, expiry, lease and ports have
# annotations of their own; the rest is the store's alone.
NOT_CARRIED = {
    "state",
    "version",
    "ready_at_ms",
    "address",
    "kernel",
    "end",
    "timings_ms",
    "public_ports",
    "ports_revision",
    "timeline",
    "callers",
    "abandoned_at_ms",
    "draining_at_ms",
    "draining_exact",
    "asked_timeout_ms",
    "spec",  # of the spec: its environment, which may hold secrets
}
# What callers have no use for, or get by a call of its own (the timeline). `pool` is `source`.
NOT_SHOWN = {
    "version",
    "fingerprint",
    "idempotency_key",
    "address",
    "ports_revision",
    "pool",
    "interpreter",
    "claim_id",
    "timeline",
    "callers",
    "abandoned_at_ms",
    "settings_digest",
    "draining_exact",
    "asked_timeout_ms",
    "spec",  # the spec's are shown one by one
}


def test_the_example_has_every_field() -> None:
    defaults = {
        one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(Sandbox)
    }
    assert [name for name in NAMES if getattr(FULL, name) == defaults[name]] == []


def test_the_store_keeps_every_field() -> None:
    for one in (FULL, replace(FULL, end=None)):
        assert rows.load(rows.dump(one)) == one


def test_a_claim_in_lua_binds_what_a_claim_in_python_does() -> None:
    wish = Sandbox("sb-9", "bob", SPEC, 20, 21, "g", idempotency_key="b", callers=("d/1",))
    warm = replace(FULL, end=None, claimed_at_ms=None, claim_id="", abandoned_at_ms=None, owner="pool:p")
    bound = replace(wish, **claim_fields(wish, 22))
    by_lua = rows.load_fields(
        {"version": warm.version + 1, **from_json(rows.own(warm)), **from_json(rows.bound(bound))}
    )
    assert by_lua == apply(warm, Event.CLAIM, Change(wish=wish, claimed_at_ms=22))


def test_the_cluster_carries_what_a_rebuild_needs() -> None:
    carried = load_record(dump_record(FULL))
    assert carried is not None
    assert {name for name in NAMES if getattr(carried, name) != getattr(FULL, name)} == NOT_CARRIED


def test_callers_are_shown_what_is_not_ours_alone() -> None:
    assert NAMES - SandboxBody.model_fields.keys() == NOT_SHOWN


def test_the_sdk_knows_what_callers_are_shown() -> None:
    assert {one.name for one in fields(SandboxRecord)} == SandboxBody.model_fields.keys()
