"""Reads records from a store that replicas of other versions write to as well."""

import json
from collections.abc import Callable
from typing import Final

import structlog

from controlplane.model import Sandbox
from controlplane.store.protocol import UnreadableRecordError
from controlplane.store.rows import load

# How many unreadable records are remembered, so that each is reported once.
MOST_REMEMBERED: Final = 4096


class Records:
    """Reads records, and remembers which it could not read.

    Args:
        unreadable: called once for each record that cannot be read.
    """

    def __init__(self, unreadable: Callable[[], None]) -> None:
        self._unreadable = unreadable
        self._odd: dict[str, None] = {}
        self._log = structlog.get_logger("records")

    def __contains__(self, sandbox_id: str) -> bool:
        """Whether the record of this sandbox could not be read the last time."""
        return sandbox_id in self._odd

    def read(self, text: str, sandbox_id: str = "") -> Sandbox:
        """The record in ``text``.

        Raises:
            UnreadableRecordError: this version cannot read it.
        """
        try:
            sandbox = load(text)
        except ValueError as error:
            raise self._unreadable_record(sandbox_id or _id_in(text), str(error)) from error
        self._odd.pop(sandbox.id, None)
        return sandbox

    def read_or_none(self, text: str, sandbox_id: str) -> Sandbox | None:
        """As ``read``, but None for an unreadable record: in a list it must not prevent reading the others."""
        try:
            return self.read(text, sandbox_id)
        except UnreadableRecordError:
            return None

    def _unreadable_record(self, sandbox_id: str, why: str) -> UnreadableRecordError:
        error = UnreadableRecordError(sandbox_id, why)
        if sandbox_id not in self._odd:
            self._odd[sandbox_id] = None
            self._unreadable()
            self._log.error("unreadable record, it is left unchanged", sandbox_id=sandbox_id, detail=error.detail)
            if len(self._odd) > MOST_REMEMBERED:
                del self._odd[next(iter(self._odd))]
        return error


def _id_in(text: str) -> str:
    """The sandbox id in an unreadable record; empty when it cannot be found."""
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError):
        return ""
