"""Which form of an image a start gets, for each wish and all that can be known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import Problem
from controlplane.lifecycle.images.form_choice import Choice, Known, choose
from controlplane.model.spec import Pull

OFFERED, ABSENT = Known("offered", digest="sha256:1"), Known("absent")
FAILED, UNKNOWN = Known("failed", why="a disk was full"), Known("unknown", why="it is away")
REFUSED = Known("failed", why="it is broken", refused=True)


@pytest.mark.parametrize(
    ("pull", "able", "known", "gets"),
    [
        ("full", True, OFFERED, ("plain", "asked", False)),
        ("full", False, ABSENT, ("plain", "asked", False)),
        ("auto", False, OFFERED, ("plain", "nodes", False)),
        ("auto", False, ABSENT, ("plain", "nodes", False)),
        ("auto", True, OFFERED, ("estargz", "", False)),
        ("auto", True, ABSENT, ("plain", "converting", True)),
        ("auto", True, FAILED, ("plain", "failed", False)),
        ("auto", True, REFUSED, ("plain", "failed", False)),
        ("auto", True, UNKNOWN, ("plain", "unknown", False)),
        ("lazy", True, OFFERED, ("estargz", "", False)),
        # It waits.
        ("lazy", True, ABSENT, ("estargz", "", False)),
        ("lazy", True, FAILED, ("estargz", "", False)),
        ("lazy", True, UNKNOWN, ("estargz", "", False)),
    ],
)
def test_the_table(pull: Pull, able: bool, known: Known, gets: tuple[str, str, bool]) -> None:
    choice = choose(pull, known, able=able)
    assert (choice.form, choice.reason, choice.convert) == gets
    assert choice.digest == (OFFERED.digest if known is OFFERED and choice.form == "estargz" else "")


@pytest.mark.parametrize(
    ("able", "known", "words"),
    [(False, OFFERED, "its nodes"), (False, REFUSED, "its nodes"), (True, REFUSED, "it is broken")],
)
def test_lazy_that_cannot_be_had_is_refused(able: bool, known: Known, words: str) -> None:
    with pytest.raises(Problem, match=words) as caught:
        choose("lazy", known, able=able)
    assert (caught.value.code, caught.value.details["option"]) == ("unsupported", "pull")


_KNOWN = st.sampled_from([OFFERED, ABSENT, FAILED, REFUSED, UNKNOWN])


def _chosen(pull: Pull, known: Known, *, able: bool) -> Choice | None:
    try:
        return choose(pull, known, able=able)
    except Problem:
        return None


@given(st.sampled_from(["auto", "full", "lazy"]), _KNOWN, st.booleans())
def test_no_start_gets_what_no_sandbox_has_started_from(pull: Pull, known: Known, able: bool) -> None:
    choice = _chosen(pull, known, able=able)
    if choice is None:
        assert pull == "lazy"
        return
    assert not choice.digest or (known.state == "offered" and able and pull != "full")
    # Whole, and why; or lazily.
    assert bool(choice.reason) == (choice.form == "plain")
    # A wish is kept: what asks for one form never gets the other.
    assert pull == "auto" or choice.form == ("plain" if pull == "full" else "estargz")
    # Only a start that goes on without it has it made behind.
    assert not choice.convert or (pull, known.state, able) == ("auto", "absent", True)


@given(_KNOWN, st.booleans())
def test_auto_always_starts_at_once(known: Known, able: bool) -> None:
    choice = choose("auto", known, able=able)
    assert choice.form == "plain" or choice.digest
