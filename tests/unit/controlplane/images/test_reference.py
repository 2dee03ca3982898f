"""References are read as Docker and containerd read them; what they refuse is refused with the reason."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.images import Reference, parse

D = "sha256:" + "0f" * 32
COMPLETED = [
    ("python", "docker.io/library/python:latest"),
    ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
    ("team/app", "docker.io/team/app:latest"),
    ("docker.io/python", "docker.io/library/python:latest"),
    ("index.docker.io/library/python:3", "docker.io/library/python:3"),
    ("localhost/app", "localhost/app:latest"),
    ("localhost:5000/a/b:1", "localhost:5000/a/b:1"),
    ("[::1]:5000/a", "[::1]:5000/a:latest"),
    ("Registry.Example.com:5000/app", "registry.example.com:5000/app:latest"),
    ("Index.Docker.IO/python", "docker.io/library/python:latest"),
    ("ghcr.io/a__b/c.d-e/f--g:_x", "ghcr.io/a__b/c.d-e/f--g:_x"),
    (f"a@{D}", f"docker.io/library/a@{D}"),
    (f"a:1@{D}", f"docker.io/library/a:1@{D}"),
    ("x@sha512:" + "a" * 128, "docker.io/library/x@sha512:" + "a" * 128),
]
REFUSED = [
    ("", "names no repository"),
    ("docker.io/", "names no repository"),
    ("Python", "'Python' must be a-z"),
    ("a//b", "'' must be"),
    ("a/../b", "'..' must be"),
    ("a/", "'' must be"),
    ("/a", "'' must be"),
    ("a___b", "'a___b' must be"),
    ("a:", "'' is not a tag"),
    ("a:.x", "'.x' is not a tag"),
    ("a:b:c", "'b:c' is not a tag"),
    ("a:" + "t" * 129, "is not a tag"),
    ("a@", "'' is not a digest"),
    ("a@sha256:abc", "is not a digest"),
    ("a@sha256:" + "F" * 64, "is not a digest"),
    ("a@md5:" + "0" * 32, "is not a digest"),
    (f"a@{D}@{D}", "is not a digest"),
    ("Registry/app", "'Registry' is not a registry: write its port"),
    ("host.example.com:99999/a", "'host.example.com:99999' is not a registry"),
    ("host.example.com:0/a", "is not a registry"),
    ("-host.example.com/a", "is not a registry"),
    ("host..example.com/a", "is not a registry"),
    ("a.example.com/" + "x" * 250, "at most 255"),
    ("a b", "'a b' must be"),
    ("bücher", "must be"),
    ("a:1\n", "is not a tag"),
]


@pytest.mark.parametrize(("text", "complete"), COMPLETED)
def test_a_short_name_is_completed(text: str, complete: str) -> None:
    assert str(parse(text)) == complete


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=lambda value: repr(value)[:40])
def test_a_malformed_reference_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        parse(text)
    assert reason in str(caught.value)


components = st.from_regex(r"[a-z0-9]{1,8}((\.|_|__|-{1,3})[a-z0-9]{1,8}){0,2}", fullmatch=True)
registries = st.one_of(
    st.just("docker.io"), st.from_regex(r"[a-z0-9]{1,9}(\.[a-z0-9]{1,9}){1,2}(:[1-9][0-9]{0,3})?", fullmatch=True)
)
tags = st.text(string.ascii_letters + string.digits + "_.-", min_size=1, max_size=128).filter(
    lambda t: t[0] not in ".-"
)
digests = st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:".__add__)


@st.composite
def references(draw: st.DrawFn) -> Reference:
    registry = draw(registries)
    parts = draw(st.lists(components, min_size=2 if registry == "docker.io" else 1, max_size=4))
    digest = draw(st.one_of(st.just(""), digests))
    return Reference(registry, "/".join(parts), draw(st.one_of(st.just(""), tags) if digest else tags), digest)


@given(references())
def test_what_is_written_is_read_again(reference: Reference) -> None:
    assert parse(str(reference)) == reference


@given(references(), digests)
def test_a_pinned_reference_keeps_its_name(reference: Reference, digest: str) -> None:
    pinned = parse(str(reference.at(digest)))
    assert (pinned.name, pinned.tag, pinned.digest) == (reference.name, reference.tag, digest)


@given(st.one_of(st.text(max_size=600), st.text("aA0.:/@_-[]", max_size=40)))
def test_any_other_text_is_refused_or_stays_the_same_once_completed(text: str) -> None:
    try:
        reference = parse(text)
    except ValueError:
        return
    assert parse(str(reference)) == reference
    assert ".." not in str(reference).split("/")
