"""Problems in answers become exceptions that say whose fault it is."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from rollbox import SandboxError
from rollbox.errors import (
    BY_CODE,
    CapacityUnavailable,
    Draining,
    Internal,
    OomKilled,
    StreamInterrupted,
    UpstreamTimeout,
)
from rollbox.transport import error_from_response

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "contract" / "vectors" / "errors.json").read_text()
)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["body"]["code"]))
def test_each_vector_becomes_its_class(vector: dict[str, Any]) -> None:
    body = vector["body"]
    error = error_from_response(vector["http"], json.dumps(body).encode(), {})
    assert type(error) is BY_CODE[body["code"]]
    for name in ("code", "fault", "retry", "mask_sample", "hint", "detail", "request_id", "details"):
        assert getattr(error, name) == body[name], name
    assert error.retry_after_ms == vector["retry_after_ms"]
    assert error.is_infra == (body["fault"] in ("capacity", "platform"))
    advice = f"{body['hint']} {error.wait}".strip()
    assert str(error) == f"{body['detail']}. {advice}".rstrip()


@pytest.mark.parametrize(("retry_after_ms", "seconds"), [(1, 1), (1_400, 1), (5_000, 5), (60_000, 60)])
def test_how_long_to_wait_before_a_retry_is_said_in_words(retry_after_ms: int, seconds: int) -> None:
    error = CapacityUnavailable("no node has room for it", retry_after_ms=retry_after_ms)
    words = f"{CapacityUnavailable.hint} Wait {seconds} s before that."
    assert str(error) == f"no node has room for it. {words}"
    assert str(CapacityUnavailable("no node has room")) == f"no node has room. {CapacityUnavailable.hint}"


def test_the_vectors_are_all_codes() -> None:
    assert {vector["body"]["code"] for vector in VECTORS} == set(BY_CODE)


def test_a_code_of_a_later_version_keeps_the_servers_words() -> None:
    body = {"code": "gpu_on_fire", "detail": "gpu 3 burns", "fault": "platform", "retry": "new_sandbox", "hint": "Run."}
    error = error_from_response(502, json.dumps(body).encode(), {"X-Request-Id": "r"})
    assert type(error) is SandboxError
    assert (error.code, error.retry, error.is_infra, error.request_id) == ("gpu_on_fire", "new_sandbox", True, "r")
    assert error.mask_sample
    own = {**body, "fault": "caller", "mask_sample": True}
    assert error_from_response(410, json.dumps(own).encode(), {}).mask_sample
    assert not error_from_response(410, json.dumps({**body, "fault": "workload"}).encode(), {}).mask_sample


@pytest.mark.parametrize(
    ("status", "kind"),
    [(502, StreamInterrupted), (503, Draining), (504, UpstreamTimeout), (500, Internal)],
)
@pytest.mark.parametrize("raw", [b"<html>Bad Gateway</html>", b"", b"[]", b'{"code": 7}', b"\xff\xfe"])
def test_a_proxys_page_becomes_what_its_status_means(status: int, kind: type[SandboxError], raw: bytes) -> None:
    error = error_from_response(status, raw, {"Retry-After": "3"})
    assert type(error) is kind
    assert str(status) in error.detail
    assert error.retry_after_ms == 3000


def test_an_error_crosses_processes() -> None:
    error = OomKilled("sandbox sb-1 is out of memory", sandbox_id="sb-1", details={"limit": "1"})
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.sandbox_id, copy.details) == (OomKilled, str(error), "sb-1", {"limit": "1"})


@pytest.mark.parametrize(("status", "page"), [(404, b"<html>nginx</html>"), (301, b""), (401, b'{"error": "no"}')])
def test_a_server_that_is_not_rollbox_is_told_as_such(status: int, page: bytes) -> None:
    error = error_from_response(status, page, {"Server": "nginx"})
    assert (error.code, error.fault, error.retry, error.mask_sample) == ("not_found", "caller", "never", True)
    assert "not from rollbox" in error.detail
    assert "ROLLBOX_URL" in error.hint
    # What stands before rollbox answers so too while rollbox is away.
    assert error_from_response(502, page, {}).code == "stream_interrupted"
    assert error_from_response(404, page, {"X-Request-Id": "r"}).code == "internal"


@pytest.mark.parametrize("status", [404, 405])
def test_a_route_that_an_older_platform_does_not_have_is_told_as_such(status: int) -> None:
    body = {"code": "invalid_argument", "detail": "there is nothing at GET /v1/later", "hint": "Correct the argument."}
    assert "older than this client" in str(error_from_response(status, json.dumps(body).encode(), {}))
    assert "Correct the argument" in str(error_from_response(400, json.dumps(body).encode(), {}))


# Only nodes have a RuntimeClass.
OF_A_CLUSTER = {"isolation_missing"}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["body"]["code"]))
def test_a_hint_speaks_of_no_cluster_on_an_engine(vector: dict[str, Any]) -> None:
    said = vector["body"]["hint"].lower()
    named = [word for word in ("cluster", "kube", "node", "pod", "runtimeclass") if word in said]
    assert not named or vector["body"]["code"] in OF_A_CLUSTER
