"""What of a solver's tree is taken, left out and refused: archives that an attacker would like to send."""

from __future__ import annotations

import contextlib
import io
import tarfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox.errors import Internal
from rollbox.files.info import TransferReport
from rollbox.grading.tree import Budget, CheckedTree, Refused, Rules, covers

ROOT = "/app"
RULES = Rules((ROOT, "/data/out"), links_to=("/usr/bin",), own=("/app/tests", "/app/src/conftest.py"))

DATA: dict[str, str] = {}
"""Of the files of the last archive, by name."""


def entry(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", *, link: str = "", mode: int = 0o644) -> bytes:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname, made.mode, made.mtime = kind, len(data), link, mode, 1_700_000_000
    head = made.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    return head + data + bytes(-len(data) % tarfile.BLOCKSIZE)


def folder(name: str, mode: int = 0o755) -> bytes:
    return entry(f"{name}/", tarfile.DIRTYPE, mode=mode)


def link(name: str, to: str) -> bytes:
    return entry(name, tarfile.SYMTYPE, link=to)


def taken(*entries: bytes, piece: int = 10_000, **options: Any) -> tuple[dict[str, tarfile.TarInfo], TransferReport]:
    """What comes out of an archive: its members by name, and the report."""
    report = TransferReport()
    budget = options.pop("budget", Budget(10**6, 1000, 1024))
    tree = CheckedTree(ROOT, options.pop("rules", RULES), budget, report, options.pop("only", None))
    sent = b"".join(entries) + bytes(2 * tarfile.BLOCKSIZE)
    out = b"".join([tree.feed(sent[at : at + piece]) for at in range(0, len(sent), piece)]) + tree.finish()
    with tarfile.open(fileobj=io.BytesIO(out), mode="r:", format=tarfile.GNU_FORMAT, errors="surrogateescape") as made:
        members = {member.name: member for member in made}
        data = {name: made.extractfile(one) for name, one in members.items() if one.isreg()}
        DATA.clear()
        DATA.update({name: file.read().decode() for name, file in data.items() if file is not None})
    return members, report


def test_what_is_plain_passes_with_modes_times_and_links() -> None:
    long = "x" * 200
    members, report = taken(
        folder("src", 0o500),
        entry("src/main.py", data=b"print()", mode=0o755),
        entry(f"src/{long}", data=b"long"),
        link("src/again", "main.py"),
        link("src/up", "../src/main.py"),
        link("bin", "/usr/bin/python3"),
        link("other", "/data/out/x"),
        link("whole", "/app"),
        entry("bad-\udcff", data=b"bytes"),
        piece=700,
    )
    assert members["src/main.py"].mode == 0o755
    assert members["src/main.py"].mtime == 1_700_000_000
    assert DATA["src/main.py"] == "print()"
    assert members["src"].mode == 0o700, "its owner can fill it"
    assert DATA[f"src/{long}"] == "long"
    assert {name: one.linkname for name, one in members.items() if one.issym()} == {
        "src/again": "main.py",
        "src/up": "../src/main.py",
        "bin": "/usr/bin/python3",
        "other": "/data/out/x",
        "whole": "/app",
    }
    assert "bad-\udcff" in members
    assert (report.count, report.size_bytes, report.skipped_count) == (9, 16, 0)


@pytest.mark.parametrize(
    "to",
    [
        "/etc/passwd",
        "/",
        "../etc/passwd",
        "../../../../etc",
        "/app/../etc/passwd",
        "src/../../etc",  # `src` may be a link itself: only leading `..` are known
        "/usr/bin/../../tests/answer",
        "/usr/binaries",
        "/application",
        "..",
        "./../x",
        "",
        "/proc/self/root/etc",
        "/logs/verifier/reward.txt",
    ],
)
def test_a_link_that_leads_out_is_left_out_and_told(to: str) -> None:
    members, report = taken(folder("src"), link("src2", to) if to != ".." else link("up", ".."), entry("rest"))
    assert set(members) == {"src", "rest"}
    assert report.skipped_count == 1
    assert "leads out" in next(iter(report.skipped.values()))


def test_bits_that_give_rights_names_with_control_characters_and_the_graders_own_are_left_out() -> None:
    members, report = taken(
        entry("su", data=b"#!", mode=0o4755),
        entry("sg", mode=0o2755),
        folder("shared", 0o3777),
        entry("a\nb"),
        entry("\x1b[31m"),
        folder("tab\there"),
        entry("tab\there/below"),
        folder("tests"),
        entry("tests/test_it.py", data=b"assert True"),
        folder("src"),
        entry("src/conftest.py"),
    )
    assert {name: one.mode for name, one in members.items()} == {
        "su": 0o755,
        "sg": 0o755,
        "shared": 0o777,
        "src": 0o755,
    }
    assert report.skipped["/app/su"] == "the set-user-ID and set-group-ID bits of its mode"
    assert report.skipped["/app/tests"] == report.skipped["/app/src/conftest.py"] == "is the grader's own"
    assert report.skipped_count == 7, "what is below something that is left out is not told one by one"


def test_nothing_stands_where_the_graders_own_files_come() -> None:
    members, report = taken(link("src", "elsewhere"), entry("tests"), folder("elsewhere"))
    assert set(members) == {"elsewhere"}
    assert set(report.skipped) == {"/app/src", "/app/tests"}


@pytest.mark.parametrize(
    ("reason", "entries"),
    [
        ("bad_name", [entry("/etc/passwd")]),
        ("bad_name", [entry("../x")]),
        ("bad_name", [folder("a"), entry("a/../../x")]),
        ("bad_name", [entry("./x")]),
        ("bad_name", [entry("a//b")]),
        ("bad_name", [folder(".")]),
        ("bad_kind", [entry("a"), entry("b", tarfile.LNKTYPE, link="a")]),
        ("bad_kind", [entry("b", tarfile.LNKTYPE, link="/etc/shadow")]),
        ("bad_kind", [entry("null", tarfile.CHRTYPE)]),
        ("bad_kind", [entry("disk", tarfile.BLKTYPE)]),
        ("bad_kind", [entry("pipe", tarfile.FIFOTYPE)]),
        ("bad_kind", [entry("holes", tarfile.GNUTYPE_SPARSE)]),
        ("bad_kind", [entry("pax", tarfile.XHDTYPE, b"30 path=/etc/cron.d/x\n")]),
        ("bad_kind", [entry("global", tarfile.XGLTYPE)]),
        ("duplicate", [entry("a"), entry("a")]),
        ("duplicate", [folder("a"), link("a", "b")]),
        ("duplicate", [link("a", "b"), entry("a")]),
        ("not_a_tree", [link("a", "/app"), entry("a/b")]),
        ("not_a_tree", [entry("a"), entry("a/b")]),
        ("not_a_tree", [entry("never/came")]),
        ("path_too_long", [entry("x" * 2000)]),
        ("too_many_bytes", [entry("big", data=b"x" * 10**6), entry("more", data=b"x")]),
        ("too_many_entries", [entry(str(number)) for number in range(1001)]),
    ],
)
def test_what_no_tree_of_the_platform_has_is_refused_with_its_reason(reason: str, entries: list[bytes]) -> None:
    with pytest.raises(Refused) as refused:
        taken(*entries)
    assert refused.value.reason == reason


def test_a_bomb_is_refused_by_its_header_before_its_data() -> None:
    made = tarfile.TarInfo("bomb")
    made.size = 10**12
    tree = CheckedTree(ROOT, RULES, Budget(10**9, 10, 1024), TransferReport())
    with pytest.raises(Refused) as refused:
        tree.feed(made.tobuf(tarfile.GNU_FORMAT))
    assert refused.value.reason == "too_many_bytes"


def test_one_file_is_one_file() -> None:
    assert set(taken(entry("out.txt", data=b"42"), only="out.txt")[0]) == {"out.txt"}
    for other in (entry("other"), entry("a/b"), folder("out.txt") + entry("out.txt/x")):
        with pytest.raises(Refused):
            taken(other, only="out.txt")


def test_what_breaks_off_or_is_damaged_is_of_the_platform_and_never_whole() -> None:
    tree = CheckedTree(ROOT, RULES, Budget(10**6, 10, 1024), TransferReport())
    tree.feed(entry("a", data=b"half")[:-1])
    with pytest.raises(Internal):
        tree.finish()
    with pytest.raises(Internal):
        taken(b"\x01" * 512)


NAMES = st.sampled_from(["a", "b", "a/b", "b/a", "tests", "tests/x", "..", "/etc", "a/../..", "src", "src/conftest.py"])
KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
LINKS = st.lists(st.sampled_from(["..", "a", "b", "", ".", "etc", "app", "usr", "bin"]), max_size=6).map("/".join)


@given(st.lists(st.tuples(NAMES, KINDS, LINKS, st.binary(max_size=600)), max_size=12), st.integers(1, 2000))
def test_whatever_comes_what_passes_is_a_plain_tree_without_a_way_out(
    entries: list[tuple[str, bytes, str, bytes]], piece: int
) -> None:
    try:
        sent = [
            entry(name, kind, data if kind == tarfile.REGTYPE else b"", link=to) for name, kind, to, data in entries
        ]
        members, _ = taken(*sent, piece=piece)
    except Refused:
        return
    folders = {""}
    for name, member in members.items():
        assert name.rpartition("/")[0] in folders
        assert not any(covers(own, f"{ROOT}/{name}") for own in RULES.own)
        assert member.isreg() or member.isdir() or member.issym()
        if member.isdir():
            folders.add(name)
        if member.issym():
            # As the kernel resolves it, where every name on the way is a real directory.
            at = [] if member.linkname.startswith("/") else ["app", *name.split("/")[:-1]]
            for part in member.linkname.split("/"):
                at = at[:-1] if part == ".." else [*at, part] if part not in ("", ".") else at
            assert any(covers(tree, "/" + "/".join(at)) for tree in (*RULES.trees, *RULES.links_to))


@given(st.binary(max_size=3000))
def test_no_bytes_break_it(data: bytes) -> None:
    with contextlib.suppress(Refused, Internal):
        taken(data.ljust(512, b"\0"))
