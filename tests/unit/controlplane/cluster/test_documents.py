"""Documents in a file, and in memory, pass the suite; a file outlives its process and is never half-written."""

from pathlib import Path

import pytest

from controlplane.cluster.engine.documents import FileDocuments
from controlplane.errors import Problem
from tests.contract.documents_suite import BODY, OTHER, DocumentsSuite


class TestInMemory(DocumentsSuite):
    """See `DocumentsSuite`."""

    @pytest.fixture
    def documents(self) -> FileDocuments:
        return FileDocuments()


class TestInAFile(DocumentsSuite):
    """See `DocumentsSuite`."""

    @pytest.fixture
    def documents(self, tmp_path: Path) -> FileDocuments:
        return FileDocuments(tmp_path / "documents.json")


async def test_a_restart_finds_what_was_declared_and_versions_do_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "documents.json"
    before = FileDocuments(path)
    await before.put("pools", "p", BODY)
    await before.put("quotas", "alice", {"owner": "alice"})
    version = await before.put("pools", "q", OTHER)
    await before.status("pools", "p", {"ready": 1})
    await before.remove("pools", "q")
    after = FileDocuments(path)
    (found,) = await after.list("pools")
    assert (found.name, found.body, dict(found.status)) == ("p", BODY, {})
    assert [one.name for one in await after.list("quotas")] == ["alice"]
    assert await after.put("pools", "q", OTHER) != version
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", '{"revision": 1, "pools": {"p": 7}}', '{"pools": {}}'])
def test_a_damaged_file_is_named_and_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "documents.json"
    path.write_text(content)
    with pytest.raises(Problem, match="move it away or put it right"):
        FileDocuments(path)
    assert path.read_text() == content


async def test_what_cannot_be_written_was_not_declared(tmp_path: Path) -> None:
    documents = FileDocuments(tmp_path / "gone" / "documents.json")
    with pytest.raises(Problem, match="cannot be written"):
        await documents.put("pools", "p", BODY)
    assert await documents.list("pools") == []
