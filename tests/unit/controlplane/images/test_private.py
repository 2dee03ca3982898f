"""The names of copies: each of one source only, readable, and valid; and which names are no user's."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.images import PrivateRegistry, parse

PRIVATE = PrivateRegistry("registry.internal:5000")
DIGEST = f"sha256:{'1' * 64}"
_PART = st.from_regex(r"[a-z0-9]{1,4}(?:[._-][a-z0-9]{1,4}){0,2}", fullmatch=True)
_REGISTRY = st.one_of(
    st.from_regex(r"[a-z0-9]{1,10}\.[a-zA-Z0-9]{1,10}(:[1-9][0-9]{0,3})?", fullmatch=True),
    st.sampled_from(["localhost:5000", "[::1]:5000", "docker.io"]),
)
_SOURCE = st.builds(
    lambda registry, parts: parse(f"{registry}/{'/'.join(parts)}:tag"),
    _REGISTRY,
    st.lists(_PART, min_size=2, max_size=6),
)


@given(_SOURCE)
def test_the_name_of_a_copy_is_one(source: object) -> None:
    reference = parse(str(source))
    copy = parse(PRIVATE.copy(reference, DIGEST))
    assert (copy.registry, copy.digest, copy.tag) == (PRIVATE.host, DIGEST, "")
    assert PRIVATE.hides(copy)


@given(_SOURCE)
def test_what_is_converted_is_apart_from_all_else(source: object) -> None:
    reference = parse(str(source))
    converted, plain = (PRIVATE.copy(reference, DIGEST, form) for form in ("estargz", "plain"))
    assert converted.startswith(PRIVATE.converted)
    assert not plain.startswith(PRIVATE.converted)
    assert PRIVATE.hides(parse(converted))


@given(_SOURCE, _SOURCE)
def test_no_two_sources_have_the_same(one: object, other: object) -> None:
    first, second = parse(str(one)), parse(str(other))
    same_source = first.name == second.name
    assert (PRIVATE.repository(first) == PRIVATE.repository(second)) == same_source


def test_names_can_be_read() -> None:
    assert PRIVATE.copy(parse("python:3"), DIGEST) == f"registry.internal:5000/mirror/docker.io/library/python@{DIGEST}"
    assert PRIVATE.repository(parse("a.example.com:443/b")) == "mirror/a.example.com__443/b"
    assert len(PRIVATE.repository(parse(f"a.example.com/{'b/' * 110}c"))) < 60


def test_only_commits_are_anybodys_to_name() -> None:
    hidden = ("registry.internal:5000/mirror/docker.io/a", "registry.internal:5000/a", "registry.internal:5000/commits")
    assert all(PRIVATE.hides(parse(name)) for name in hidden)
    shown = ("registry.internal:5000/commits/alice/a:1", "registry.internal/mirror/a", "docker.io/mirror/a")
    assert not any(PRIVATE.hides(parse(name)) for name in shown)


def test_which_repositories_have_checkpoints() -> None:
    assert PRIVATE.has_checkpoints("commits/alice/checkpoints")
    for other in (
        "commits/alice/repo",
        "commits/alice/my/checkpoints",
        "commits/checkpoints",
        "commits/alice/checkpoints/more",
        "mirror/alice/checkpoints",
    ):
        assert not PRIVATE.has_checkpoints(other)
