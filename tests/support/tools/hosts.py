"""The names of the indexes: those that programs ask by themselves, so presets and programs are tested as they are."""

from __future__ import annotations

from typing import Final

PYPI: Final = "pypi.org"
PYPI_FILES: Final = "files.pythonhosted.org"
NPM: Final = "registry.npmjs.org"
CRATES_INDEX: Final = "index.crates.io"
CRATES: Final = "static.crates.io"
GO: Final = "proxy.golang.org"
MAVEN: Final = "repo.maven.apache.org"
DEBIAN: Final = "deb.debian.org"
FORGE: Final = "github.com"
ALL: Final = (PYPI, PYPI_FILES, NPM, CRATES_INDEX, CRATES, GO, MAVEN, DEBIAN, FORGE)
