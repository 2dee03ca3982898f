"""Why ``rollbox up`` cannot run here, and what to do about it."""


class TroubleError(Exception):
    """Ends ``rollbox up`` with a message for the person at the terminal.

    Args:
        detail: what is wrong.
        fix: what to do.
    """

    def __init__(self, detail: str, fix: str) -> None:
        super().__init__(f"{detail}\n  {fix}")
        self.detail = detail
        self.fix = fix
