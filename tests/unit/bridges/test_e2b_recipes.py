"""The steps of a template as a Dockerfile: each step, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rollbox_bridges.e2b import names, recipes
from rollbox_bridges.e2b.words import Refusal

HASH = "a" * 64


def written(*steps: dict[str, Any], **more: Any) -> list[str]:
    return [*recipes.recipe_of({"fromImage": "python:1", "steps": [*steps], **more}, "n").steps]


def step(kind: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "args": [*args], "force": False, **more}


def test_each_step_is_an_instruction() -> None:
    made = recipes.recipe_of(
        {
            "fromImage": "python:1",
            "force": False,
            "steps": [
                step("ENV", "A", 'a "b" \\ $PATH', "B", ""),
                step("WORKDIR", "/a b"),
                step("USER", "nobody"),
                step("COPY", "src/*.py", "/app/", "root:root", "0755", filesHash=HASH),
                step("COPY", ".", "/all", "", "", filesHash=HASH),
            ],
        },
        "n",
    )
    assert made.dockerfile("python@1").splitlines() == [
        "FROM python@1",
        'ENV A="a \\"b\\" \\\\ $PATH"',
        'ENV B=""',
        "WORKDIR /a b",
        "USER nobody",
        f'COPY --chown=root:root --chmod=0755 ["{HASH}/src/*.py", "/app/"]',
        f'COPY ["{HASH}/.", "/all"]',
    ]
    assert (made.base, made.of_template, [*made.files]) == ("python:1", False, [HASH])


@given(some.text(min_size=1))
def test_a_command_is_one_line_and_one_word_of_it(command: str) -> None:
    (line,) = written(step("RUN", command))
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line.removeprefix("RUN "))[-1] == command


def test_a_command_of_another_user_leaves_the_user_as_it_was() -> None:
    first, second = written(step("RUN", "x", "nobody")), written(step("USER", "a"), step("RUN", "x", "nobody"))
    assert [line for line in first if line.startswith("USER")] == ["USER nobody", "USER root"]
    assert [line for line in second if line.startswith("USER")] == ["USER a", "USER nobody", "USER a"]
    assert len(written(step("USER", "a"), step("RUN", "x", "a"))) == 2


def test_the_user_that_clients_name_by_themselves_is_made_first() -> None:
    lines = written(step("RUN", "x"), step("USER", "user"))
    assert lines[0] == "USER root"
    assert "/etc/passwd" in lines[1]


def test_what_is_forced_is_no_earlier_step() -> None:
    assert written(step("RUN", "x", force=True))[0] == "ARG FORCED_0=n"
    assert written(step("RUN", "x"), force=True)[0] == "ARG FORCED_0=n"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"fromImage": "a", "fromTemplate": "b"}, 400),
        ({"fromImage": "a\nRUN x"}, 400),
        ({"fromImage": 1}, 400),
        ({"fromImage": "a", "later": 1}, 400),
        ({"fromImage": "a", "startCmd": "server"}, 501),
        ({"fromImage": "a", "readyCmd": "true"}, 501),
        ({"fromImage": "a", "fromImageRegistry": {"type": "aws"}}, 501),
        ({"fromImage": "a", "steps": {}}, 400),
        ({"fromImage": "a", "steps": [step("RUN", "x")] * 501}, 400),
        *(
            ({"fromImage": "a", "steps": [one]}, status)
            for one, status in (
                ("RUN", 400),
                ({"type": "RUN", "args": ["x"], "later": 1}, 400),
                (step("ADD", "x", "y"), 501),
                (step("RUN"), 400),
                (step("RUN", ""), 400),
                (step("RUN", "x", "a b"), 400),
                (step("USER", "a\nRUN x"), 400),
                (step("WORKDIR", "/a\nRUN x"), 400),
                (step("ENV", "A"), 400),
                (step("ENV", "A B", "x"), 400),
                (step("ENV", "A", "x\ny"), 400),
                (step("COPY", "a", "/b"), 400),
                (step("COPY", "a", "/b", filesHash="A" * 64), 400),
                (step("COPY", "../a", "/b", filesHash=HASH), 400),
                (step("COPY", "/a", "/b", filesHash=HASH), 400),
                (step("COPY", "a", "/b", "", "rwx", filesHash=HASH), 400),
                (step("COPY", "a", "/b", "--from=x", "", filesHash=HASH), 400),
            )
        ),
    ],
)
def test_what_cannot_be_built_is_refused_with_its_place(body: dict[str, Any], status: int) -> None:
    with pytest.raises(Refusal) as refused:
        recipes.recipe_of(body, "n")
    assert refused.value.status == status


@pytest.mark.parametrize("text", ["", "A", "a/b", "a:", ":t", "a:b:c", "a b", "builds", 1, None, "a" * 128])
def test_what_is_no_name_of_a_template_is_refused(text: object) -> None:
    with pytest.raises(Refusal):
        names.parts(text)
