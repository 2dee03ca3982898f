"""What the engine says about containers, judged."""

from typing import Any

import pytest

from controlplane.cluster.engine.deaths import death, exit_of, gave_up, last_words

UP = {"State": {"Running": True, "Status": "running"}}


def gone(code: int, *, oom: bool = False, error: str = "", status: str = "exited") -> dict[str, Any]:
    return {"State": {"Running": False, "Status": status, "ExitCode": code, "OOMKilled": oom, "Error": error}}


@pytest.mark.parametrize(
    ("target", "sidecar", "cause", "detail"),
    [
        (gone(137), UP, "sandbox_lost", "the target ended with exit code 137"),
        (gone(137), gone(137), "sandbox_lost", "the target ended with exit code 137"),
        (gone(137), gone(137, oom=True), "oom_killed", "the kernel killed the sidecar for memory"),
        (UP, gone(137, oom=True), "oom_killed", "the kernel killed the sidecar for memory"),
        (UP, gone(1, error="no such file"), "sandbox_lost", "the sidecar ended with exit code 1: no such file"),
        (UP, gone(0, status="created"), "sandbox_lost", "the sidecar was never started"),
        (UP, None, "sandbox_lost", "the sidecar was removed from outside"),
        (None, None, "sandbox_lost", "the target was removed from outside"),
    ],
)
def test_a_sandbox_is_dead_when_a_container_is(target: Any, sidecar: Any, cause: str, detail: str) -> None:
    seen = death("sb-1", {"target": target, "sidecar": sidecar})
    assert seen is not None
    assert (seen.cause, seen.detail) == (cause, detail)


def test_a_sandbox_with_both_containers_running_lives() -> None:
    assert death("sb-1", {"target": UP, "sidecar": UP}) is None


def event(action: str, **attributes: str) -> dict[str, Any]:
    return {"Type": "container", "Action": action, "Actor": {"ID": "x", "Attributes": attributes}}


def test_an_exit_is_read_from_an_event() -> None:
    seen = exit_of(event("die", **{"rollbox.sandbox": "sb-1", "rollbox.role": "target", "exitCode": "137"}))
    assert seen is not None
    assert (seen.sandbox_id, seen.detail, seen.sure) == ("sb-1", "the target ended with exit code 137", True)


@pytest.mark.parametrize("one", [event("start", **{"rollbox.sandbox": "sb-1"}), event("die", name="stranger"), {}])
def test_other_events_are_of_no_concern(one: dict[str, Any]) -> None:
    assert exit_of(one) is None


def test_only_a_container_that_gave_up_has_something_to_say() -> None:
    assert gave_up(gone(64))
    assert not any(gave_up(seen) for seen in (UP, None, gone(0), gone(137), gone(143)))


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (b"", ""),
        (b"\x02\0\0\0\0\0\0\x06first\n\x02\0\0\0\0\0\0\x05last\n", "last"),
        (b"\x02\0\0\0\0\0\0\xffcut", "cut"),
        (b"\x02\0\0", ""),
    ],
)
def test_last_words_are_the_last_line_of_the_log(log: bytes, words: str) -> None:
    assert last_words(log) == words
