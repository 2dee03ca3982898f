"""``Verdicts``: what this control plane knows of converted copies, and for how long it holds."""

from collections import Counter, OrderedDict
from typing import Final

from controlplane.clock import Clock
from controlplane.images import Converted
from controlplane.lifecycle.images.form_choice import Known

# How long an answer of the mirror holds.
KNOWN_MS: Final = 60_000
# How long it is not tried again: what the image is at fault for, and all else, which doubles with each failure.
REFUSED_MS: Final = 3_600_000
FAILED_MS: Final = 120_000
# So often a command has to fail in sandboxes before nothing is started from a converted copy any more.
TRIALS: Final = 3
MOST_KNOWN: Final = 32_768


class Verdicts:
    """By image (``key_of``)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._trials: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._known: OrderedDict[str, tuple[Known, int]] = OrderedDict()

    def known(self, key: str) -> Known | None:
        """What holds now; None: nothing."""
        known, until_ms = self._known.get(key, (None, 0))
        return known if self._clock.now_ms() < until_ms else None

    def last(self, key: str) -> str:
        """The digest that was offered last, whether that holds still or not; empty: none."""
        known, _ = self._known.get(key, (None, 0))
        return "" if known is None else known.digest

    def found(self, key: str, found: Converted | None) -> Known:
        """Takes in what the mirror has."""
        if found is None or found.booted is None:
            known = Known("absent")
        elif found.booted:
            known = Known("offered", found.digest)
        else:
            known = Known("failed", why=f"no sandbox starts from its converted copy: {found.why}", refused=True)
        return self._keep(key, known, KNOWN_MS)

    def tried(self, key: str, made: Converted) -> Known:
        """Takes in that sandboxes have been started from a converted copy, or have not for the last time."""
        self._failures.pop(key, None)
        return self.found(key, made)

    def refused(self, key: str, why: str) -> None:
        """Takes in what the image is at fault for."""
        self._keep(key, Known("failed", why=why, refused=True), REFUSED_MS)

    def failed(self, key: str, why: str) -> None:
        """Nothing that the image is at fault for: starts get the plain copy for a while, longer each time."""
        self._failures[key] += 1
        for_ms = min(REFUSED_MS, FAILED_MS << min(30, self._failures[key] - 1))
        # With the digest: other starts from the same copy may fail later.
        self._keep(key, Known("failed", self.last(key), why=why), for_ms)

    def trial_failed(self, key: str, digest: str) -> int:
        """Counts a command that has failed in a sandbox from this copy; the how many-th that is, 0: the last one."""
        one = f"{key} {digest}"
        self._trials[one] += 1
        count = self._trials[one]
        if count >= TRIALS or len(self._trials) > MOST_KNOWN:
            del self._trials[one]
        return count if count < TRIALS else 0

    def _keep(self, key: str, known: Known, for_ms: int) -> Known:
        self._known[key] = (known, self._clock.now_ms() + for_ms)
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            oldest, _ = self._known.popitem(last=False)
            self._failures.pop(oldest, None)
        return known
