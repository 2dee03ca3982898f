"""Spans of creates and commands, from this program to the spawner, by OpenTelemetry; off unless ROLLBOX_TRACING is set.

This module makes spans by OpenTelemetry's API alone: where they go is what the program has set up, or
`opentelemetry-instrument` for it. No other part of the platform makes spans: the answers have the durations of its
phases, from which their spans are made here, as children. Each request carries W3C's `traceparent`, and its request id
has the ids of trace and span, so that the log lines of gateway and control plane are found by the trace.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rollbox._problem import SandboxError
from rollbox._version import __version__
from rollbox.errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from rollbox.record import SandboxRecord

SETTING = "ROLLBOX_TRACING"
"""The variable that switches it on."""

_VALUES = {"": False, "0": False, "1": True}
_INSTALL = "Install opentelemetry-api (`pip install rollbox[tracing]`), or unset ROLLBOX_TRACING."


@functools.cache
def tracer() -> Tracer | None:
    """Return what makes spans; None: tracing is off. The setting is read once.

    Raises:
        InvalidArgument: the setting is neither 0 nor 1.
        Unsupported: it is on, and OpenTelemetry is not installed.
    """
    value = os.environ.get(SETTING, "")
    if value not in _VALUES:
        raise InvalidArgument(f"{SETTING} is {value!r}, neither 0 nor 1")
    if not _VALUES[value]:
        return None
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise Unsupported(f"{SETTING} is on, and OpenTelemetry is not installed: {error}", hint=_INSTALL) from error
    return trace.get_tracer("rollbox", __version__)


def headers() -> dict[str, str]:
    """Return the headers that carry the present span ; none where there is no span, or tracing is off."""
    if tracer() is None:
        return {}
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    here = trace.get_current_span().get_span_context()
    if not here.is_valid:
        return {}
    sent = {"X-Request-Id": f"{here.trace_id:032x}-{here.span_id:016x}"}
    TraceContextTextMapPropagator().inject(sent)
    return sent


@contextmanager
def creating(body: Mapping[str, Any]) -> Iterator[Callable[[SandboxRecord], None]]:
    """Make the span of a create while its block runs; gives what tells the record that came of it.

    Args:
        body: of the create; only its image is told.
    """
    with _span("rollbox.create", image=body.get("image")) as (made, began_ns):

        def tells(record: SandboxRecord) -> None:
            from rollbox.recording import phases  # noqa: PLC0415

            took_ms, warm = (time.time_ns() - began_ns) / 1e6, record.source == "warm"
            made.set_attributes(_attributes({"sandbox_id": record.id, "source": record.source}))
            parts = {"claim": took_ms} if warm else phases.of_start(record.timings_ms, took_ms)
            _children("rollbox.create", began_ns, parts)

        yield tells


@contextmanager
def grouping(body: Mapping[str, Any], count: int) -> Iterator[None]:
    """Make the span of a group's create while its block runs.

    Args:
        body: of the create of each sandbox.
        count: how many there are.
    """
    with _span("rollbox.create_group", image=body.get("image"), count=count):
        yield


@contextmanager
def executing(sandbox_id: str, exec_id: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Make the span of an exec while its block runs; gives what tells its answer. The command is not in it."""
    with _span("rollbox.exec", sandbox_id=sandbox_id, exec_id=exec_id) as (made, began_ns):

        def tells(answer: Mapping[str, Any]) -> None:
            from rollbox.recording import phases  # noqa: PLC0415

            made.set_attributes(_attributes({name: answer.get(name) for name in ("end", "exit_code")}))
            _children("rollbox.exec", began_ns, phases.of_exec(answer, (time.time_ns() - began_ns) / 1e6))

        yield tells


@contextmanager
def _span(name: str, **told: Any) -> Iterator[tuple[Span, int]]:  # noqa: ANN401
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    makes, began_ns = tracer(), time.time_ns()
    if makes is None:
        raise RuntimeError("a span is made where tracing is on")
    # Exceptions are not recorded: their texts may quote what the caller passed.
    with makes.start_as_current_span(
        name,
        kind=SpanKind.CLIENT,
        attributes=_attributes(told),
        start_time=began_ns,
        record_exception=False,
        set_status_on_exception=False,
    ) as made:
        try:
            yield made, began_ns
        except BaseException as error:
            _failed(made, error)
            raise


def _children(name: str, at_ns: int, parts_ms: Mapping[str, float]) -> None:
    """Make a span of each phase, one after the other; of what is in no phase, half is the way there."""
    from rollbox.recording.phases import REST  # noqa: PLC0415

    makes = tracer()
    at_ns += round(parts_ms.get(REST, 0.0) * 1e6 / 2)
    for part, part_ms in parts_ms.items():
        if part != REST and makes is not None:
            child = makes.start_span(f"{name}.{part}", start_time=at_ns)
            at_ns += round(part_ms * 1e6)
            child.end(at_ns)


def _failed(made: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415

    if isinstance(error, SandboxError):
        told = {
            "code": error.code,
            "fault": error.fault,
            "request_id": error.request_id,
            "sandbox_id": error.sandbox_id,
        }
        made.set_attributes(_attributes(told))
        made.set_status(StatusCode.ERROR, error.code)
    else:
        made.set_status(StatusCode.ERROR, type(error).__name__)


def _attributes(told: Mapping[str, Any]) -> dict[str, Any]:
    return {f"rollbox.{name}": value for name, value in told.items() if value not in (None, "")}
