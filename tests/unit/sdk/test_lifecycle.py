"""Create, connect, extend, detach, delete: no sandbox is created twice, and none is left behind."""

import pickle
from collections.abc import Coroutine

import pytest

from rollbox import Client, SandboxError, SandboxGroup
from rollbox.errors import (
    CapacityUnavailable,
    ImageNotFound,
    Internal,
    InvalidArgument,
    QuotaExceeded,
    SandboxNotFound,
    UpstreamTimeout,
)
from tests.support.gateway_fake import FakeGateway, Fault
from tests.unit.sdk.conftest import Clock


@pytest.mark.parametrize(
    "fault", [Fault(), Fault(after=True), Fault("draining"), Fault("upstream_timeout", after=True)]
)
async def test_a_create_that_broke_is_sent_again_and_makes_one(client: Client, fake: FakeGateway, fault: Fault) -> None:
    fake.fail("create", fault, fault)
    await client.create("python")
    assert len(fake.sandboxes) == 1
    keys = {headers["Idempotency-Key"] for method, _, headers in fake.requests if method == "POST"}
    assert len(keys) == 1


async def test_a_create_that_gives_up_deletes_what_it_may_have_made(client: Client, fake: FakeGateway) -> None:
    fake.fail("create", *[Fault("upstream_timeout", after=True)] * 11)
    with pytest.raises(UpstreamTimeout):
        await client.create("python", start_timeout=1)
    assert [box["state"] for box in fake.sandboxes.values()] == ["ended"]


class Full:
    """A server that holds a create until its deadline, at most 15 s, and then answers that no node has room."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.told_ms: list[int] = []

    async def send(self, method: str, *_: object, headers: dict[str, str], **__: object) -> None:
        self.told_ms.append(int(headers["Start-Timeout-Ms"]))
        await self._clock.sleep(min(self.told_ms[-1] / 1000, 15.0))
        raise CapacityUnavailable("no node takes it: 0/1 nodes are available: 1 Insufficient cpu.", request_id="r1")


@pytest.mark.parametrize("of_group", [False, True])
async def test_a_create_ends_at_its_deadline_with_what_the_server_said_last(
    client: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch, *, of_group: bool
) -> None:
    full = Full(clock)
    monkeypatch.setattr(client.gateway._transport, "send", full.send)
    monkeypatch.setattr(client.gateway, "run_cleanup", _no_cleanup)
    group = SandboxGroup.create("python", n=2, start_timeout=20, client=client)
    one = client.create("python", start_timeout=20)
    call, other = (group, one) if of_group else (one, group)
    other.close()
    with pytest.raises(CapacityUnavailable, match="Insufficient cpu"):
        await call
    assert clock.now_s <= 20.001  # the time left is sent in whole milliseconds
    assert full.told_ms[0] == 20_000
    # The second attempt sent the time left, so the server holds it no longer than the caller waits.
    assert len(full.told_ms) == 2
    assert 4_800 <= full.told_ms[1] <= 5_000


async def test_what_a_create_may_take_holds_for_the_silence_of_a_server_too(
    fake: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollbox.gateway._ANSWER_GRACE_S", 0.0)
    fake.hold_creates = True
    async with Client() as client:
        with pytest.raises(UpstreamTimeout):
            await client.create("python", start_timeout=0.2)
    assert fake.count("POST") <= 1


async def _no_cleanup(call: Coroutine[object, object, None]) -> None:
    call.close()


async def test_a_callers_own_key_is_left_to_the_caller(client: Client, fake: FakeGateway) -> None:
    fake.fail("create", *[Fault("upstream_timeout", after=True)] * 11)
    with pytest.raises(UpstreamTimeout):
        await client.create("python", idempotency_key="mine", start_timeout=1)
    fake.faults.clear()
    again = await client.create("python", idempotency_key="mine", start_timeout=1)
    assert list(fake.sandboxes) == [again.id]


@pytest.mark.parametrize(
    ("image", "fault", "kind"), [("missing", None, ImageNotFound), ("p", "quota_exceeded", QuotaExceeded)]
)
async def test_what_the_caller_must_know_is_raised_at_once(
    client: Client, fake: FakeGateway, image: str, fault: str | None, kind: type[SandboxError]
) -> None:
    if fault:
        fake.fail("create", Fault(fault))
    with pytest.raises(kind):
        await client.create(image)
    assert len(fake.requests) == 1


async def test_one_that_is_gone_already_is_a_success(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.sandboxes.clear()
    await sandbox.delete()


async def test_the_first_failure_is_kept_when_the_delete_fails_too(client: Client, fake: FakeGateway) -> None:
    fake.fail("delete", Fault("internal"))
    with pytest.raises(ZeroDivisionError) as caught:
        async with await client.create("python"):
            raise ZeroDivisionError
    assert "could not be deleted" in caught.value.__notes__[0]


async def test_a_delete_that_fails_alone_is_raised(client: Client, fake: FakeGateway) -> None:
    fake.fail("delete", Fault("internal"))
    with pytest.raises(Internal) as caught:
        async with await client.create("python"):
            pass
    assert caught.value.sandbox_id == "sb-1"


@pytest.mark.parametrize("value", ["", "a b", "a+b", "a&b=c", "ä/…", "100%", "#?;,"])
async def test_any_text_is_a_label(client: Client, value: str) -> None:
    await client.create("python", labels={"the run": "other"})
    sandbox = await client.create("python", labels={"the run": value})
    assert [box.id for box in await client.list({"the run": value})] == [sandbox.id]
    assert (await client.delete(labels={"the run": value})).deleted == [sandbox.id]


async def test_an_unknown_sandbox_is_told_by_its_id(client: Client) -> None:
    with pytest.raises(SandboxNotFound, match="nobody") as caught:
        await client.connect("nobody")
    assert caught.value.sandbox_id == "nobody"
    with pytest.raises(InvalidArgument, match="empty"):
        await client.connect("")
    with pytest.raises(SandboxError):
        await client.connect("../../v1/info?x=#")


def _waits(fake: FakeGateway) -> list[str]:
    """Return for each delete how long it waits for the confirmation (ms); empty: not at all."""
    return [path.partition("wait_ms=")[2] for method, path, _ in fake.requests if method == "DELETE"]


async def test_a_delete_waits_for_the_confirmation_only_when_asked(client: Client, fake: FakeGateway) -> None:
    async with await client.create("python") as sandbox:
        pass
    # It has ended without a wait for the confirmation, which a second delete can wait for.
    await sandbox.delete(wait=True, wait_timeout=5)
    async with await SandboxGroup.create("python", n=2, name="g", client=client) as group:
        assert (await group.delete(wait=True)).failed == {}
    await client.delete(sandbox.id, labels={"run": "r"})
    await client.delete(sandbox.id, labels={"run": "r"}, wait=True, wait_timeout=0.5)
    assert _waits(fake) == ["", "5000", "60000", "", "", "500", "500"]


async def test_what_could_not_wait_is_refused_before_anything_is_sent(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    for nonsense in ({"wait_timeout": 5}, {"wait": True, "wait_timeout": 0}):
        with pytest.raises(InvalidArgument, match="wait_timeout"):
            await sandbox.delete(**nonsense)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="wait_timeout"):
            await client.delete(sandbox.id, **nonsense)  # type: ignore[arg-type]
    assert _waits(fake) == []


async def test_a_confirmation_that_does_not_come_in_time_is_told_and_not_asked_for_again(
    client: Client, fake: FakeGateway
) -> None:
    sandbox = await client.create("python")
    fake.fail("delete", Fault("upstream_timeout", after=True, details={"waited_ms": "5000"}))
    with pytest.raises(UpstreamTimeout) as told:
        await sandbox.delete(wait=True, wait_timeout=5)
    assert told.value.sandbox_id == sandbox.id
    assert len(_waits(fake)) == 1


async def test_a_delete_that_is_repeated_waits_for_what_is_left_of_its_time(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.fail("delete", Fault("draining"))
    await sandbox.delete(wait=True, wait_timeout=5)
    first, second = map(int, _waits(fake))
    assert second <= first <= 5000


async def test_pickling_says_what_to_pass_instead(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    with pytest.raises(TypeError, match="pass 'sb-1', and call Sandbox.connect"):
        pickle.dumps(sandbox)


@pytest.mark.parametrize("wrong", ["x/../y", "..", "sb-1/exec", "sb 1", "sb-1?all", "-x", "ü", "a" * 200])
async def test_what_is_no_id_is_refused_as_such_and_not_sent(client: Client, fake: FakeGateway, wrong: str) -> None:
    calls = [client.connect(wrong), client.get(wrong), client.timeline(wrong), client.egress_log(wrong)]
    if "/" in wrong or not wrong.strip("."):
        calls += [client.pool(wrong), client.quota(wrong), client.node(wrong), client.egress_preset(wrong)]
        calls += [SandboxGroup.connect(wrong, client=client)]
    for call in calls:
        with pytest.raises(InvalidArgument) as caught:
            await call
        assert repr(wrong) in caught.value.detail
        assert "nothing at" not in caught.value.detail
    assert fake.requests == []
