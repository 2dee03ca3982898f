"""A program's trace as a collector gets it: down to the spawner, by OpenTelemetry's own exporter over OTLP."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.images import IMAGE
from tests.support.stack import Product

SECRET = "s3cret-value"
# A trainer, as docs/observability.md has it, without the distribution that sets the exporter up.
PROGRAM = """
import asyncio, sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from rollbox import Client

async def main(image, secret):
    with trace.get_tracer("trainer").start_as_current_span("rollout"):
        async with Client() as client, await client.create(image) as sandbox:
            result = await sandbox.exec(["sh", "-c", "test \\"$KEY\\" && sleep 0.2"], env={"KEY": secret})
            assert result.exit_code == 0, result

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
asyncio.run(main(*sys.argv[1:]))
provider.shutdown()
"""


class Collector:
    """Receives what exporters send, and keeps it."""

    def __init__(self) -> None:
        self.url = ""
        self.raw = b""
        self.spans: list[Span] = []

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        body = gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return web.Response(content_type="application/x-protobuf")

    def named(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    found, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", found.receive)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


async def traced(stack: Product, collector: Collector, **settings: str) -> None:
    """Run the trainer to its end."""
    environ = {**os.environ, **stack.environment(), "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **settings}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, IMAGE, SECRET, env=environ)
    assert await process.wait() == 0


async def test_one_trace_goes_from_the_program_to_the_spawner(stack: Product, collector: Collector) -> None:
    await traced(stack, collector, ROLLBOX_TRACING="1")
    assert len({span.trace_id for span in collector.spans}) == 1
    rollout, create, command = (collector.named(name) for name in ("rollout", "rollbox.create", "rollbox.exec"))
    assert (create.parent_span_id, command.parent_span_id) == (rollout.span_id, rollout.span_id)
    phases = {span.name: span for span in collector.spans if span.name.count(".") == 2}
    # The gateway tells its queue, the sidecar's spawner the start of the process and its run.
    assert {"rollbox.exec.spawn", "rollbox.exec.run"} <= phases.keys()
    # The control plane tells what the start was: on which node and up to the first command, or a claim.
    assert {f"rollbox.create.{name}" for name in ("claim", "node", "boot")} & phases.keys()
    for name, span in phases.items():
        above = create if name.startswith("rollbox.create") else command
        assert span.parent_span_id == above.span_id
        assert above.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= above.end_time_unix_nano + 1_000_000
    run = phases["rollbox.exec.run"]
    assert run.end_time_unix_nano - run.start_time_unix_nano >= 200_000_000
    assert SECRET.encode() not in collector.raw


async def test_without_the_setting_there_are_the_programs_own_spans_only(stack: Product, collector: Collector) -> None:
    await traced(stack, collector, ROLLBOX_TRACING="0")
    assert [span.name for span in collector.spans] == ["rollout"]
