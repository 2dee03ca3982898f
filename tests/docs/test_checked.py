"""What the pages show and tests do not run is right as far as can be seen without running it."""

from __future__ import annotations

import re
import shlex

import pytest
import yaml

from docs.site import values
from tests.docs.blocks import ROOT, blocks, listing, pages, rules, why_not
from tests.unit.sdk.test_readme import parse

ALL = [one for page in pages() for one in blocks(page)]
SHELL = [one for one in ALL if one.kind == "shell"]
# Not of the chart: documents of other programs, of Kubernetes, mini-swe-agent and NeMo Gym.
OTHERS = ("apiVersion", "environment", "sandbox_provider")
ENDS = ("|", "||", "&&", "2>", ">", "<", ";")


def commands(program: str) -> list[list[str]]:
    """The words behind a program in every command line of every page; up to a pipe or the next command."""
    line = re.compile(rf"^(?:\$ |\w+=\$\(|(?:\w+=\S+ )+)?{program} (.+?)\)?$")
    found = []
    for block in SHELL:
        for one in re.sub(r"\s*\\\n\s*", " ", block.text).splitlines():
            if words := line.match(one.strip()):
                rest = shlex.split(re.split(r" -> |    ", words[1])[0], comments=True)
                ends = [at for at, word in enumerate(rest) if word in ENDS]
                found.append(rest[: min(ends, default=len(rest))])
    return found


@pytest.mark.parametrize("words", commands("rollbox"), ids=" ".join)
def test_command_lines_of_rollbox_parse(words: list[str]) -> None:
    if words != ["--version"]:  # it ends the program
        parse(words[2:] if words[0] == "--context" else words)


def test_verbs_are_in_the_makefile() -> None:
    verbs = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {word for words in commands("make") for word in words if re.fullmatch(r"[a-z0-9-]+", word)}
    assert used
    assert used <= verbs


def known() -> set[str]:
    """The names of all values of the chart."""

    def names(found: list[values.Value]) -> set[str]:
        return {name for one in found for name in (one.name, *names(one.inside))}

    return names(values.read((ROOT / "helm/values.yaml").read_text()))


def test_values_that_command_lines_set_are_the_charts() -> None:
    set_by = {word.partition("=")[0] for words in commands("helm") for word in words if "=" in word}
    # An entry of a map has a name of its own.
    assert {name for name in set_by if name not in known() and name.rpartition(".")[0] not in known()} == set()
    assert set_by


def test_values_that_pages_name_are_the_charts() -> None:
    tops = {name.partition(".")[0] for name in known()}
    wrong = []
    for page in pages():
        for name in re.findall(r"`((?:[a-z]\w*\.)+[a-z]\w*)(?:=[^`]*|: [^`]*)?`", (ROOT / page).read_text()):
            if name.partition(".")[0] in tops - {"dns", "registry", "sandboxes", "gateway"} and not _is_value(name):
                wrong.append(f"{page}: {name}")
    assert wrong == []


def _is_value(name: str) -> bool:
    return (
        name in known()
        or name.rpartition(".")[0] in known()
        or re.search(r"\.(py|md|rs|go|yaml|json)$", name) is not None
    )


def test_data_is_what_it_says() -> None:
    for block in [one for one in ALL if one.language == "yaml"]:
        for document in yaml.safe_load_all(block.text):
            if not any(key in document for key in OTHERS):
                assert set(document) <= {name for name in known() if "." not in name}, f"{block.page}:{block.line}"


def test_every_rule_has_a_block() -> None:
    assert [rule for rule in rules() if not any(rule.has(one) for one in ALL)] == []


def test_every_block_is_run_or_has_a_reason() -> None:
    table = rules()
    assert all(why_not(one, table) or one.kind in ("shell", "program", "fragment", "output", "drawing") for one in ALL)
    assert listing().count("\n| ") >= len(ALL)
