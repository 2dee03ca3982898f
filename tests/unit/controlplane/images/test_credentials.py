"""What a registry asks for, and whose credentials answer it."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.images import Challenge, Credentials, Keyring, challenges, parse


def config(**auths: object) -> str:
    return json.dumps({"auths": auths})


def entry(user: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:pass:word".encode()).decode()}


def test_credentials_are_those_of_the_longest_part_of_the_name() -> None:
    keyring = Keyring.of(
        [
            config(**{"registry.io": entry("all"), "registry.io/team": entry("team"), "*.Example.com": entry("any")}),
            config(**{"https://index.docker.io/v1/": {"username": "hub", "password": "p"}, "registry.io": entry("no")}),
        ]
    )

    def user(image: str) -> str | None:
        found = keyring.find(parse(image))
        return None if found is None else found.username

    assert user("registry.io/team/app") == "team"
    assert user("Registry.IO/team/app") == "team"
    assert user("registry.io/teamwork/app") == "all"
    assert user("a.example.com/x") == "any"
    assert user("a.b.example.com/x") is None
    assert user("python") == "hub"
    assert user("ghcr.io/x/y") is None
    assert keyring.find(parse("registry.io/x")) == Credentials("all", "pass:word")


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"auths": []}', config(**{"a.io": {"auth": "!"}}), config(**{"a.io": {"auth": "eA=="}})],
)
def test_a_malformed_file_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match="^not a .dockerconfigjson: an object with 'auths'$"):
        Keyring.of([text])


def test_no_password_is_shown() -> None:
    assert "hunter2" not in repr(Keyring({"a": Credentials("user", "hunter2")}))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('Basic realm="r"', [Challenge("basic", {"realm": "r"})]),
        (
            'Bearer realm="https://auth.io/token",service="a \\"b\\"", scope="repository:x/y:pull,push"',
            [
                Challenge(
                    "bearer",
                    {"realm": "https://auth.io/token", "service": 'a "b"', "scope": "repository:x/y:pull,push"},
                )
            ],
        ),
        (
            "Negotiate, BASIC Realm=r, Bearer realm=x",
            [Challenge("negotiate"), Challenge("basic", {"realm": "r"}), Challenge("bearer", {"realm": "x"})],
        ),
        ("", []),
        ('realm="x"', []),
    ],
)
def test_a_challenge_is_read(header: str, expected: list[Challenge]) -> None:
    assert list(challenges(header)) == expected


@given(st.text(max_size=300))
def test_any_header_is_read(header: str) -> None:
    challenges(header)
