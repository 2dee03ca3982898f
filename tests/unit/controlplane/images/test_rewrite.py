"""Which registry an image comes from: the first rule that fits; rules that say nothing are refused."""

import pytest

from controlplane.images import Rewrites, parse

RULES = """
docker.io/library/python -> mirror.example.com/own/python,
docker.io/* -> mirror.example.com/hub/*
ghcr.io/team/* -> localhost:5000/*
"""
D = "sha256:" + "0f" * 32


@pytest.mark.parametrize(
    ("image", "pulled"),
    [
        ("python:3.12", "mirror.example.com/own/python:3.12"),
        ("debian", "mirror.example.com/hub/library/debian:latest"),
        ("team/app@" + D, "mirror.example.com/hub/team/app@" + D),
        ("ghcr.io/team/app:1", "localhost:5000/app:1"),
        ("ghcr.io/teamwork/app:1", "ghcr.io/teamwork/app:1"),
        ("quay.io/a/b", "quay.io/a/b:latest"),
        ("mirror.example.com/hub/x", "mirror.example.com/hub/x:latest"),
    ],
)
def test_the_first_rule_that_fits_holds(image: str, pulled: str) -> None:
    assert str(Rewrites.parse(RULES).applied(parse(image))) == pulled


def test_without_rules_a_name_stays() -> None:
    assert Rewrites.parse(" ").applied(parse("python")) == parse("python")


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("docker.io/*", "must be FROM -> TO"),
        ("a.io/* -> b.io/* -> c.io/*", "must be FROM -> TO"),
        ("docker.io/* -> b.io", "both sides must end in '/*', or neither"),
        ("docker.io/a/b -> mirror/b", "'mirror/b' must begin with a registry"),
        ("docker.io/* -> mirror/*", "'mirror/*' must begin with a registry"),
        ("docker.io -> b.io", "must name a repository"),
        ("docker.io/A/* -> b.io/*", "'A' must be a-z"),
        ("docker.io/* -> b.io:x/*", "is not a registry"),
        ("docker.io/* -> b.io/*, docker.io/a/* -> c.io/*", "the rule for 'docker.io/a' can never apply"),
        ("docker.io/a/b -> b.io/b, docker.io/a/b -> c.io/b", "can never apply"),
        (",".join(f"r{n}.io/* -> b.io/*" for n in range(65)), "65 rules are more than 64"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(rules: str, reason: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        Rewrites.parse(rules)
    assert reason in str(caught.value)
