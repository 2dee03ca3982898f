"""What Docker's bridge reads and says: creates, limits, execs, streams, names, and errors."""

from __future__ import annotations

import contextlib
import json
import signal
import tomllib
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rollbox import ExecResult, FileInfo, ImageConfig, errors
from rollbox_bridges.docker import creating, frames, limits, pathstat, references, running, words
from rollbox_bridges.docker.bindings import Binding
from rollbox_bridges.docker.shim import creating as typed
from rollbox_bridges.docker.shim import looking, streams

CODES = tomllib.loads((Path(__file__).parents[3] / "contract/errors.toml").read_text())["code"]
ANY_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_error_of_the_platform_has_a_status_and_says_whose_fault_it_is(code: str) -> None:
    told = words.as_refusal(errors.BY_CODE[code]("it is so"))
    assert 400 <= told.status < 600
    assert f"[{code}, fault: {CODES[code]['fault']}, mask_sample: " in told.message


def test_an_image_that_is_not_there_is_told_in_the_words_by_which_clients_pull() -> None:
    told = words.as_refusal(errors.ImageNotFound("nowhere"))
    assert (told.status, told.message.startswith("No such image: ")) == (404, True)


def test_zeros_ask_for_nothing_whatever_their_field_and_its_case() -> None:
    body = {"image": "x:1", "CMD": "true", "Future": None, "HostConfig": {"Privileged": False, "Binds": [], "New": 0}}
    wish = creating.wish_of(body)
    assert (wish.image, wish.entrypoint, wish.cmd, wish.limits) == ("x:1", None, ("true",), limits.Limits())


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"Binds": ["/a:/b"]}, "HostConfig.Binds"),
        ({"privileged": True}, "HostConfig.privileged"),
        ({"NetworkMode": "host"}, "network 'host'"),
        ({"NetworkMode": "container:x"}, "network 'container:x'"),
        ({"MemorySwap": -1}, "MemorySwap -1"),
        ({"MemoryReservation": 5}, "MemoryReservation without Memory"),
        ({"PortBindings": {"53/udp": [{"HostPort": "53"}]}}, "publishing port 53/udp"),
        ({"StorageOpt": {"other": "1"}}, "StorageOpt 'other'"),
        ({"LogConfig": {"Type": "syslog"}}, "LogConfig.Type 'syslog'"),
        ({"SecurityOpt": ["seccomp=x"]}, "SecurityOpt 'seccomp=x'"),
        ({"RestartPolicy": {"Name": "always"}}, "HostConfig.RestartPolicy"),
        ({"Unheard": {"of": 1}}, "HostConfig.Unheard"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(config: dict[str, Any], says: str) -> None:
    with pytest.raises(words.Refusal, match="is not supported by rollbox's bridge") as refused:
        limits.limits_of(config)
    assert (refused.value.status, refused.value.message.startswith(says)) == (400, True)


def test_limits_are_those_of_docker_in_the_units_of_the_platform() -> None:
    config = {"Memory": 2**30, "MemoryReservation": 2**20, "CpuQuota": 50_000, "PidsLimit": -1, "AutoRemove": True}
    more = {"StorageOpt": {"size": "2g"}, "NetworkMode": "none", "PortBindings": {"80/tcp": None}}
    found = limits.limits_of({**config, **more})
    assert found == limits.Limits(
        memory=(2**20, 2**30),
        cpu=0.5,
        disk_bytes=2 << 30,
        offline=True,
        ports=(Binding(80, "127.0.0.1", 0),),
        auto_remove=True,
    )
    assert limits.limits_of({"NanoCpus": 1_500_000_000}).cpu == 1.5


SAYS = ImageConfig(
    "x:1", entrypoint=("e",), cmd=("c",), env={"A": "1", "B": "2"}, cwd="/w", user="u", stop_signal="SIGRTMIN+3"
)


@pytest.mark.parametrize(
    ("asked", "argv"),
    [
        ({}, ("e", "c")),
        ({"Cmd": ["own"]}, ("e", "own")),
        ({"Entrypoint": ["own"]}, ("own",)),
        ({"Entrypoint": ["own"], "Cmd": ["a"]}, ("own", "a")),
        ({"Entrypoint": []}, ("c",)),
        ({"Entrypoint": [""], "Cmd": ["own"]}, ("own",)),
    ],
)
def test_a_command_is_made_of_the_creates_and_the_images_words(asked: dict[str, Any], argv: tuple[str, ...]) -> None:
    assert creating.settled(creating.wish_of({"Image": "x:1", **asked}), SAYS).argv == argv


def test_what_a_create_says_goes_before_what_its_image_says() -> None:
    config = {"PublishAllPorts": True, "PortBindings": {"80/tcp": None}}
    body = {"Image": "x:1", "Env": ["B=3"], "User": "v", "Labels": {"l": "own"}, "HostConfig": config}
    says = replace(SAYS, labels={"l": "1", "m": "2"}, ports=("80/tcp", "81"))
    found = creating.settled(creating.wish_of({**body, "ExposedPorts": {"82/tcp": {}}}), says)
    assert (found.env, found.cwd, found.user, found.labels) == (
        {"A": "1", "B": "3"},
        "/w",
        "v",
        {"l": "own", "m": "2"},
    )
    assert found.stop_signal == signal.SIGRTMIN + 3
    assert [one.port for one in found.ports] == [80, 82, 81]


@pytest.mark.parametrize("body", [{"Entrypoint": [""]}, {"Cmd": []}])
def test_without_any_command_there_is_no_container(body: dict[str, Any]) -> None:
    for config in (None, ImageConfig("x:1")):
        with pytest.raises(words.Refusal, match="no command specified") as refused:
            creating.settled(creating.wish_of({"Image": "x:1", **body}), config)
        assert refused.value.status == 400
    # What the platform does not tell is a shell, for those who type.
    assert creating.settled(creating.wish_of({"Image": "x:1", "Tty": True}), None).argv == ("sh",)


def test_fields_that_an_operator_leaves_out_are_told_and_no_others() -> None:
    body = {"HostConfig": {"CapAdd": ["SYS_ADMIN"], "Privileged": True}}
    (told,) = creating.without(body, {"CapAdd"})
    assert told.startswith("HostConfig.CapAdd ['SYS_ADMIN'] was left out: ")
    assert body == {"HostConfig": {"Privileged": True}}


@given(ANY_JSON)
def test_any_body_is_read_or_refused(body: object) -> None:
    for read in (creating.wish_of, running.exec_of, limits.limits_of):
        with contextlib.suppress(words.Refusal):
            read({"Image": "x", "Cmd": "true", "HostConfig": body} if read is creating.wish_of else body)


@pytest.mark.parametrize(("text", "number"), [("TERM", 15), ("sigkill", 9), ("10", 10), ("", 1)])
def test_signals_are_numbers_and_names(text: str, number: int) -> None:
    assert creating.signal_of(text, 1) == number
    with pytest.raises(words.Refusal, match="invalid signal: odd"):
        creating.signal_of("odd", 1)


def test_ends_are_one_number() -> None:
    def result(**fields: Any) -> ExecResult:
        return ExecResult.from_json({"exit_code": None, "signal": None, **fields}, "sb-1")

    assert running.ended(result(end="exited", exit_code=3)) == running.Ended(3)
    assert running.ended(result(end="signalled", signal=15)) == running.Ended(143)
    assert running.ended(result(end="oom_killed", signal=9)) == running.Ended(137, oom_killed=True)
    assert running.ended(result(end="cancelled")) == running.Ended(137)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("python", "python:latest"),
        ("docker.io/library/python:3", "python:3"),
        ("docker.io/a/b", "a/b:latest"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
        ("a@sha256:0", "a@sha256:0"),
    ],
)
def test_images_have_the_names_that_dockers_clients_show(given: str, name: str) -> None:
    assert references.familiar(given) == name
    assert references.image_id(given) == references.image_id(name)


@pytest.mark.parametrize("name", ["", "a", "-a", "a/b", "a b", "x" * 201])
def test_names_that_no_container_has_are_refused(name: str) -> None:
    with pytest.raises(words.Refusal, match="Invalid container name"):
        references.checked_name(name)
    assert references.checked_name("/a.b-c_d") == "a.b-c_d"


def test_a_file_is_told_in_gos_modes() -> None:
    info = FileInfo("/a/b", "directory", mode=0o1777, modified_at_ms=1000)
    told = json.loads(b64decode(pathstat.header(info)))
    assert (told["name"], told["mode"], told["mtime"]) == ("b", 1 << 31 | 1 << 20 | 0o777, "1970-01-01T00:00:01Z")


PIECES = some.lists(some.tuples(some.sampled_from([1, 2]), some.binary(max_size=12)), max_size=6)


@given(PIECES, some.integers(1, 20))
def test_streams_come_whole_however_they_are_cut(pieces: list[tuple[int, bytes]], size: int) -> None:
    wire = b"".join(frames.frame(stream, data) for stream, data in pieces)
    seen: dict[int, bytes] = {1: b"", 2: b""}

    def write(descriptor: int, data: bytes) -> None:
        seen[descriptor] += data

    reader = streams.Frames(bare=False, write=write)
    for at in range(0, len(wire), size):
        reader.feed(wire[at : at + size])
    assert seen == {number: b"".join(data for stream, data in pieces if stream == number) for number in (1, 2)}


@given(some.lists(some.binary(max_size=8), max_size=6), some.integers(0, 5))
def test_the_last_lines_of_one_stream_are_those_of_its_text(pieces: list[bytes], most: int) -> None:
    text = b"".join(pieces)
    lines = text.split(b"\n")
    ended = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    found = b"".join(data for _, data in frames.last_lines([(1, one) for one in pieces], most))
    assert found == b"".join(ended[len(ended) - most :] if most and most < len(ended) else ended if most else [])


def test_what_is_typed_is_the_body_of_a_create(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED", "f")
    assert typed.variables(["A=1", "FORWARDED", "UNSET_HERE"]) == ["A=1", "FORWARDED=f"]
    assert typed.bindings(["8000", "1:2", "127.0.0.1:3:4/tcp"]) == {
        "8000/tcp": [{"HostIp": "", "HostPort": ""}],
        "2/tcp": [{"HostIp": "", "HostPort": "1"}],
        "4/tcp": [{"HostIp": "127.0.0.1", "HostPort": "3"}],
    }
    assert [typed.size_of(one) for one in ("", "512m", "1.5g", "-1")] == [0, 512 << 20, 3 << 29, -1]


def test_templates_are_filled_or_refused() -> None:
    value = {"State": {"Running": True, "Status": "exited"}}
    assert looking.formatted("{{.State.Status}} {{json .State.Running}}", value) == "exited true"
    for template in ("{{range .State}}", "{{.Nothing}}"):
        with pytest.raises(ValueError, match="template"):
            looking.formatted(template, value)
