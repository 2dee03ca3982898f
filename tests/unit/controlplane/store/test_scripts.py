"""Scripts take what they are given by name."""

import re

import pytest

from controlplane.store.scripts import Script, scripts

ALL = scripts()


def test_arguments_are_sent_in_the_declared_order() -> None:
    assert ALL["rebuilt"].names == ("content_id",)
    assert ALL["due"].values({"most": 3, "now": 1, "unconfirmed_before": 2}) == [1, 2, 3]


@pytest.mark.parametrize("given", [{}, {"now": 1}, {"owner": "a", "now": 1}])
def test_an_argument_that_is_missing_or_unknown_is_refused(given: dict[str, str | int]) -> None:
    with pytest.raises(TypeError, match="the script takes owner, and was given"):
        ALL["usage"].values(given)


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_script_reads_only_what_it_declares_and_declares_only_what_it_reads(name: str) -> None:
    _, prologue, body = ALL[name].source.split("\n", 2)
    own = body[body.index("local function taken_back") :]
    read = set(re.findall(r"\ba\.(\w+)", own))
    assert read <= set(ALL[name].names)
    if "version" not in ALL[name].names:
        assert read == set(ALL[name].names)
    assert [one for one in re.findall(r"(\w+) =", prologue) if one != "a"] == list(ALL[name].names)


def test_a_name_is_declared_once() -> None:
    assert all(len(set(script.names)) == len(script.names) for script in ALL.values())


def test_only_what_stores_a_new_sandbox_is_refused_when_memory_is_full() -> None:
    def refused(script: Script) -> bool:
        return script.source.startswith("#!lua\n")

    assert {name for name, script in ALL.items() if refused(script)} == {"admit", "append", "claim"}
