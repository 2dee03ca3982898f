"""What is said of an image that the engine does not have."""

from __future__ import annotations

import pytest

from controlplane.cluster.engine.images import _candidates
from controlplane.cluster.engine.near import hint

HERE = [
    "localhost/team/app:1",
    "localhost/team/app:2",
    "docker.io/library/python:3.12-slim",
    "r.example.com:5000/a/b:1",
]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "localhost/team/app",
            "that name has the tag `latest`, and this machine has localhost/team/app:1, localhost/team/app:2",
        ),
        ("team/app:3", "of that name this machine has localhost/team/app:1, localhost/team/app:2"),
        ("localhost/team/ap:1", "similar names on this machine: localhost/team/app:1, localhost/team/app:2"),
        ("pyhton:3.12-slim", "similar names on this machine: docker.io/library/python:3.12-slim"),
        (
            "r.example.com:5000/a/b",
            "that name has the tag `latest`, and this machine has r.example.com:5000/a/b:1",
        ),
        ("nothing/alike", ""),
    ],
)
def test_a_name_that_is_not_here_is_told_beside_those_that_are(name: str, said: str) -> None:
    assert hint(name, HERE) == said


def test_only_a_few_of_many_are_told() -> None:
    said = hint("a", [f"localhost/a:{tag}" for tag in range(9)])
    assert said.endswith("localhost/a:0, localhost/a:1, localhost/a:2 and 6 more")


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("python:3", ("python:3", "localhost/python:3")),
        ("team/app", ("team/app", "localhost/team/app")),
        ("localhost/app:1", ("localhost/app:1",)),
        ("registry.example.com:5000/team/app:1", ("registry.example.com:5000/team/app:1",)),
        ("registry.example.com/app", ("registry.example.com/app",)),
        ("[::1]:5000/app", ("[::1]:5000/app",)),
        ("r.io:5/a:1@sha256:0", ("sha256:0", "r.io:5/a@sha256:0")),
        ("a:1@sha256:0", ("sha256:0", "a@sha256:0", "localhost/a@sha256:0")),
    ],
)
def test_an_engine_is_asked_for_names_that_it_can_read(name: str, asked: tuple[str, ...]) -> None:
    assert _candidates(name) == asked
