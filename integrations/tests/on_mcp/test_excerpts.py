"""The part of an output that is shown, without a server."""

from __future__ import annotations

from rollbox_integrations.mcp.excerpts import before, continued, excerpt

TEXT = "aé€😀".encode() * 100


def test_a_long_output_is_shown_by_its_beginning_and_its_end() -> None:
    for most in range(256, 300):
        shown = excerpt(TEXT, len(TEXT), most, hint="look")
        head, left_out, tail = shown.split("\n")
        assert "\ufffd" not in shown
        assert (TEXT.decode().startswith(head), TEXT.decode().endswith(tail)) == (True, True)
        told = len(head.encode()) + len(tail.encode())
        assert left_out == f"[... {len(TEXT) - told} bytes left out: look ...]"
        assert most - 3 <= told <= most + 3


def test_of_an_output_that_was_not_kept_whole_what_is_there_is_shown() -> None:
    assert excerpt(b"end", 103, 256, start=100, hint="look") == "[... 100 bytes left out: look ...]\nend"
    assert excerpt(b"begin", 105, 256, hint="look") == "begin\n[... 100 bytes left out: look ...]"
    assert excerpt(b"whole\xff", 6, 256, hint="look") == "whole\ufffd"


def test_a_cut_is_between_characters() -> None:
    assert [before("a€b".encode(), at) for at in range(6)] == [0, 1, 1, 1, 4, 5]
    assert before(b"\x80" * 9, 8) == 8
    assert [continued("a€b".encode()[at:]) for at in range(5)] == [0, 0, 2, 1, 0]
