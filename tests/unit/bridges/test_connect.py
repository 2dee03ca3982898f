"""Connect: envelopes in any pieces, both codecs over the same messages, and bytes that are neither."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rollbox_bridges.connect.codec import Codec, decoded, encoded, shape_of
from rollbox_bridges.connect.codes import STATUS, ConnectError, end_of_stream
from rollbox_bridges.connect.framing import COMPRESSED, END_OF_STREAM, Envelopes, enveloped
from rollbox_bridges.e2b.messages import FILESYSTEM, PROCESS

MOST = 1000
TAKEN = {None, "invalid_argument", "out_of_range"}
CONTENTS = some.lists(some.binary(max_size=MOST), max_size=5)


def test_an_envelope_is_a_byte_of_flags_the_length_and_the_content() -> None:
    assert enveloped(b"abc") == b"\x00\x00\x00\x00\x03abc"
    assert enveloped(b"{}", END_OF_STREAM) == b"\x02\x00\x00\x00\x02{}"


@given(CONTENTS, some.lists(some.integers(1, 40), min_size=1))
def test_envelopes_come_out_as_they_went_in_whatever_the_pieces(contents: list[bytes], sizes: list[int]) -> None:
    data, reader, came, at = b"".join(map(enveloped, contents)), Envelopes(MOST), [], 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        came += [one.content for one in reader.feed(data[at : at + size])]
        at += size
    reader.finish()
    assert came == contents


def code_of(call: Callable[[], object]) -> str | None:
    """The code of the error that a call ends with; None: it ends with none."""
    try:
        call()
    except ConnectError as error:
        return error.code
    return None


@given(some.binary(max_size=3 * MOST))
def test_any_bytes_are_envelopes_or_an_error_and_none_is_over_the_limit(data: bytes) -> None:
    reader, came = Envelopes(MOST), []

    def read() -> None:
        for one in reader.feed(data):
            came.append(len(one.content))
        reader.finish()

    assert code_of(read) in TAKEN
    assert max(came, default=0) <= MOST


def test_an_envelope_over_the_limit_is_refused_by_its_head_alone() -> None:
    with pytest.raises(ConnectError, match="1001 bytes is over the 1000") as refused:
        list(Envelopes(MOST).feed(b"\x00\x00\x00\x03\xe9"))
    assert refused.value.code == "out_of_range"


def test_a_compressed_envelope_is_read_and_what_it_grows_to_is_bounded() -> None:
    assert [one.content for one in Envelopes(MOST).feed(enveloped(gzip.compress(b"x" * MOST), COMPRESSED))] == [
        b"x" * MOST
    ]
    with pytest.raises(ConnectError, match="more than the 1000 bytes"):
        list(Envelopes(MOST).feed(enveloped(gzip.compress(bytes(100_000)), COMPRESSED)))
    with pytest.raises(ConnectError, match="not one whole gzip stream"):
        list(Envelopes(MOST).feed(enveloped(gzip.compress(b"x")[:-4], COMPRESSED)))


def test_half_an_envelope_at_the_end_is_an_error() -> None:
    reader = Envelopes(MOST)
    assert list(reader.feed(b"\x00\x00\x00\x00\x05abc")) == []
    with pytest.raises(ConnectError, match="ends within an envelope"):
        reader.finish()


def test_the_wire_form_of_messages_is_that_of_their_numbers_and_names() -> None:
    started = PROCESS["StartResponse"](event=PROCESS["ProcessEvent"](start=PROCESS["Started"](pid=7)))
    assert encoded("proto", started) == bytes.fromhex("0a040a020807")
    assert json.loads(encoded("json", started)) == {"event": {"start": {"pid": 7}}}
    out = PROCESS["StartResponse"](event=PROCESS["ProcessEvent"](data=PROCESS["Data"](stdout=b"\xff")))
    assert encoded("proto", out) == bytes.fromhex("0a0512030a01ff")
    assert json.loads(encoded("json", out)) == {"event": {"data": {"stdout": "/w=="}}}
    end = PROCESS["Ended"](exit_code=-1, exited=False, status="signal: killed", error="signal: killed")
    assert json.loads(encoded("json", end)) == {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"}
    # A sint32: -1 is one byte.
    assert encoded("proto", end)[:2] == bytes.fromhex("0801")


@pytest.mark.parametrize("codec", ["json", "proto"])
def test_a_question_is_read_from_both_codecs(codec: Codec) -> None:
    config = {"cmd": "/bin/bash", "args": ["-l", "-c", "true"], "envs": {"A": "1"}, "cwd": "/usr"}
    question = PROCESS["StartRequest"](process=PROCESS["ProcessConfig"](**config), stdin=False)
    asked = decoded(codec, PROCESS["StartRequest"], encoded(codec, question))
    assert (asked.process.cmd, [*asked.process.args], dict(asked.process.envs)) == (
        "/bin/bash",
        config["args"],
        {"A": "1"},
    )
    assert asked.HasField("stdin")
    assert not asked.stdin
    assert not asked.HasField("pty")
    assert not asked.HasField("tag")


def test_an_enumeration_is_its_name_or_its_number_in_json() -> None:
    for written in ('"SIGNAL_SIGKILL"', "9"):
        data = f'{{"process": {{"pid": 3}}, "signal": {written}}}'.encode()
        assert decoded("json", PROCESS["SendSignalRequest"], data).signal == 9


def test_a_field_that_a_message_has_not_is_named_since_it_would_be_ignored() -> None:
    with pytest.raises(ConnectError, match="recursiv"):
        decoded("json", FILESYSTEM["WatchDirRequest"], b'{"path": "/", "recursiv": true}')
    with pytest.raises(ConnectError, match="WatchDirRequest has no field of the number 7"):
        decoded("proto", FILESYSTEM["WatchDirRequest"], bytes.fromhex("0a012f3801"))
    with pytest.raises(ConnectError, match=r"StartRequest.process has no field of the number 9"):
        decoded("proto", PROCESS["StartRequest"], bytes.fromhex("0a024801"))


@given(some.binary(max_size=300))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    assert code_of(lambda: decoded("json", PROCESS["StartRequest"], data)) in TAKEN
    assert code_of(lambda: decoded("proto", PROCESS["StartRequest"], data)) in TAKEN


@given(some.recursive(some.none() | some.booleans() | some.text(max_size=5), some.lists, max_leaves=5))
def test_any_json_is_a_message_or_an_error(value: object) -> None:
    for body in ({"process": value}, {"process": {"args": value}}, {"stdin": value}, value):
        assert code_of(partial(decoded, "json", PROCESS["StartRequest"], json.dumps(body).encode())) in TAKEN


def test_deep_json_is_refused() -> None:
    with pytest.raises(ConnectError):
        decoded("json", PROCESS["StartRequest"], b'{"process":' * 3000 + b"1" + b"}" * 3000)


def test_a_content_type_says_codec_and_framing() -> None:
    assert shape_of("application/connect+json; charset=utf-8", streams=True).codec == "json"
    assert shape_of("application/proto", streams=False).content_type == "application/proto"
    for kind, streams in (("application/json", True), ("application/connect+proto", False), ("text/plain", True)):
        with pytest.raises(ConnectError, match="is none of"):
            shape_of(kind, streams=streams)


def test_every_code_has_a_status_and_a_last_envelope() -> None:
    assert len(STATUS) == 16
    assert end_of_stream(None) == b"{}"
    told = {"error": {"code": "not_found", "message": "none"}}
    assert json.loads(end_of_stream(ConnectError("not_found", "none"))) == told
