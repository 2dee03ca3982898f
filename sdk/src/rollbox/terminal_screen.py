"""What a terminal shows, as text, and the prompts in it. Pure but for the reads."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from rollbox.process import OutputStream

# Longer than the text of a prompt.
_OVERLAP = 128


class Prompt(NamedTuple):
    """A prompt: which of them, and the exit code that it shows."""

    number: int
    exit_code: int


class Screen:
    """Reads the output of a terminal; keeps the last `max_chars` of what nobody has taken yet."""

    def __init__(self, stream: OutputStream, mark: str, max_chars: int) -> None:
        self._stream = stream
        self._prompt = re.compile(re.escape(mark) + r"(\d+):(\d+);")
        self.max_chars = max_chars
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._half = ""
        self._text = ""
        self._dropped = 0
        # The newest prompt that was taken, and how many were.
        self.last = Prompt(0, 0)
        self.prompts = 0

    async def more(self) -> bool:
        """Wait for output; returns False at the end. Cancel safety: nothing is lost."""
        data = await self._stream.next_bytes()
        text = self._half + self._decoder.decode(data, final=not data)
        # A carriage return at the end may be half of the end of a line.
        self._half = "\r" if data and text.endswith("\r") else ""
        self._text += text.removesuffix(self._half).replace("\r\n", "\n")
        over = len(self._text) - self.max_chars
        if over > 0:
            self._dropped += over
            self._text = self._text[over:]
        return bool(data)

    async def prompt(self) -> tuple[str, bool]:
        """Take what comes up to the first prompt; it is `last` then.

        Returns:
            the text without the prompt, and whether the prompt came: the terminal may end first.
        """
        looked = 0
        while True:
            if found := self._prompt.search(self._text, looked):
                return self._taken(found.end()), True
            looked = max(0, len(self._text) - _OVERLAP)
            before = self._dropped
            if not await self.more():
                return self._taken(len(self._text)), False
            looked = max(0, looked - (self._dropped - before))

    async def pattern(self, wanted: re.Pattern[str] | None, *, prompt: bool = False) -> str | None:
        """Take what comes up to the end of a match, and return it without prompts; None when the terminal ends first.

        Args:
            wanted: what is looked for; None: nothing.
            prompt: a prompt ends the wait too.

        Cost: looks through all that nobody has taken, with every message that comes.
        """
        sought = [one for one in (wanted, self._prompt if prompt else None) if one is not None]
        while not (found := [match for one in sought if (match := one.search(self._text))]):
            if not await self.more():
                return None
        return self._taken(min(found, key=re.Match.start).end())

    def take(self) -> tuple[str, int]:
        """Take all that is there; returns it without prompts, and how many characters were dropped before it."""
        dropped, self._dropped = self._dropped, 0
        return self._taken(len(self._text)), dropped

    def _taken(self, size: int) -> str:
        taken, self._text = self._text[:size], self._text[size:]
        for found in self._prompt.finditer(taken):
            self.last = Prompt(int(found[1]), int(found[2]))
            self.prompts += 1
        return self._prompt.sub("", taken)
