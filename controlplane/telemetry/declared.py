"""Values of labels that operators declare: names of pools and owners, of which a bounded number is told apart."""

from typing import Final

# A series for each: more pools or owners than this are told together.
MOST: Final = 100
OTHERS: Final = "~other"


class DeclaredNames:
    """The names of one kind that are told apart: the first ``MOST`` that are seen, for good, since counters stay."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def told(self, name: str) -> str:
        """The value of the label for this name."""
        if name not in self._known:
            if len(self._known) >= MOST:
                return OTHERS
            self._known.add(name)
        return name
