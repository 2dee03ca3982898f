"""Spans by OpenTelemetry: off unless asked for, then from this program to the spawner, without what is secret."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rollbox import Client, Run, SandboxError, SandboxGroup, tracing
from rollbox.errors import InvalidArgument, Unsupported
from tests.support.gateway_fake import FakeGateway

SECRET = "s3cret-value"


@pytest.fixture(autouse=True)
def read_anew() -> Iterator[None]:
    tracing.tracer.cache_clear()
    yield
    tracing.tracer.cache_clear()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Switch tracing on; spans go to the library's exporter in memory."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setenv(tracing.SETTING, "1")
    return exporter


def named(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [one for one in exporter.get_finished_spans() if one.name == name]
    return found


def context_of(span: ReadableSpan) -> trace.SpanContext:
    assert isinstance(span.context, trace.SpanContext)
    return span.context


async def test_off_is_the_default_and_sends_nothing_more(client: Client, fake: FakeGateway) -> None:
    async with await client.create("python") as sandbox:
        await sandbox.exec("x")
    assert tracing.tracer() is None
    assert tracing.headers() == {}
    assert not any("traceparent" in str(headers).lower() for _, _, headers in fake.requests)


async def test_a_create_and_an_exec_have_spans_with_their_phases(
    client: Client, fake: FakeGateway, spans: InMemorySpanExporter
) -> None:
    async with await client.create("python") as sandbox:
        await sandbox.exec("x")
    create, execed = named(spans, "rollbox.create"), named(spans, "rollbox.exec")
    assert dict(create.attributes or {}) == {"rollbox.image": "python", "rollbox.sandbox_id": "sb-1"}
    assert dict(execed.attributes or {})["rollbox.end"] == "exited"
    for name, parent in (
        ("rollbox.create.start", create),
        ("rollbox.exec.spawn", execed),
        ("rollbox.exec.run", execed),
    ):
        child = named(spans, name)
        assert child.parent is not None
        assert child.parent.span_id == context_of(parent).span_id
        assert parent.start_time is not None
        assert child.start_time is not None
        assert child.start_time >= parent.start_time


async def test_requests_carry_the_span_and_their_id_is_that_of_the_log_lines(
    client: Client, fake: FakeGateway, spans: InMemorySpanExporter
) -> None:
    sandbox = await client.create("python")
    await sandbox.exec("x")
    asked = [headers for method, path, headers in fake.requests if method == "POST" and path.endswith("/exec")]
    sent = [{name.lower(): value for name, value in headers.items()} for headers in asked]
    here = context_of(named(spans, "rollbox.exec"))
    ids = f"{here.trace_id:032x}-{here.span_id:016x}"
    assert [(one["traceparent"], one["x-request-id"]) for one in sent] == [(f"00-{ids}-{here.trace_flags:02x}", ids)]


async def test_renewals_of_a_lease_are_in_no_span(
    client: Client, fake: FakeGateway, spans: InMemorySpanExporter
) -> None:
    sandbox = await client.create("python", lease=0.01)
    while fake.renewed.get((sandbox.record.lease or {})["name"], 0) < 2:  # noqa: ASYNC110 - the fake has no event for it
        await asyncio.sleep(0.001)
    renewals = [headers for _, path, headers in fake.requests if "/leases/" in path]
    assert renewals
    assert not any(name.lower() == "traceparent" for headers in renewals for name in headers)
    assert spans.get_finished_spans()


async def test_one_trace_is_that_of_the_programs_own_span(client: Client, spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("program").start_as_current_span("step") as step:
        async with Run("r", show=False, client=client) as run, await client.create("python") as sandbox:
            await sandbox.exec("x")
    traces = {context_of(one).trace_id for one in spans.get_finished_spans()}
    assert traces == {step.get_span_context().trace_id}
    assert (await run.report()).execs == {"exited": 1}


async def test_a_failure_has_its_code_and_nothing_that_was_passed(
    client: Client, fake: FakeGateway, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    fake.files.root = tmp_path
    with pytest.raises(SandboxError):
        await client.create("missing", env={"KEY": SECRET})
    sandbox = await client.create("python", env={"KEY": SECRET}, files={"/f": SECRET})
    await sandbox.exec(["echo", SECRET], env={"KEY": SECRET}, stdin=SECRET)
    await SandboxGroup.create("python", n=2, client=client)
    failed = next(one for one in spans.get_finished_spans() if not one.status.is_unset)
    assert dict(failed.attributes or {})["rollbox.code"] == failed.status.description == "image_not_found"
    assert named(spans, "rollbox.create_group").attributes == {"rollbox.image": "python", "rollbox.count": 2}
    assert SECRET not in "".join(one.to_json() for one in spans.get_finished_spans())


def test_another_value_and_a_missing_library_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.SETTING, "yes")
    with pytest.raises(InvalidArgument, match="neither 0 nor 1"):
        tracing.tracer()
    monkeypatch.setenv(tracing.SETTING, "1")
    plain = builtins.__import__

    def absent(name: str, *rest: object) -> object:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return plain(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(Unsupported) as caught:
        tracing.tracer()
    assert "pip install" in caught.value.hint
