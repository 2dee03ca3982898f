"""The text of keys: what a scanner of secrets and a typo can tell."""

import re

import pytest

from controlplane.access import ID, digest, key_id, new_key


def test_a_key_has_its_id_and_enough_that_nobody_guesses() -> None:
    one, other = new_key(), new_key()
    assert re.fullmatch(r"rbxk_[0-9a-z]{12}_[0-9A-Za-z]{49}", one.text)
    assert re.match(ID, one.id)
    assert key_id(one.text) == one.id
    assert one.id.removeprefix("key-") in one.text
    assert one.text != other.text
    assert digest(one.text) != digest(other.text)
    assert one.text not in repr(one)


def test_a_key_that_is_rotated_keeps_its_id() -> None:
    before = new_key()
    after = new_key(before.id)
    assert (after.id, after.text == before.text) == (before.id, False)


def test_a_text_that_was_cut_off_or_mistyped_is_told_from_an_unknown_one() -> None:
    text = new_key().text
    letter = "a" if text[30] != "a" else "b"
    for wrong in (text[:-1], text + "0", text[:30] + letter + text[31:], "rbxk_", "rbxk_x"):
        with pytest.raises(ValueError, match="cut off or mistyped"):
            key_id(wrong)
    for other in ("rbx_alice_0123456789", "", "eyJhbGciOiJFZERTQSJ9.e30.x"):
        assert key_id(other) is None
