"""``GroupUses``: a group's copy is used by its last sandbox for as long as that runs, and there for the next one."""

from collections.abc import Callable

from controlplane.images import Form, PrivateRegistry, parse
from controlplane.lifecycle.images.registry_store import RegistryStore
from controlplane.lifecycle.record.transition import Effect, Transition
from controlplane.model import GROUP


class GroupUses:
    """Notes the end of a group's sandbox as a use of its copy, which then is young.

    A group has one digest for as long as records of it are kept, also between two sandboxes: its registry may give that
    digest no more.

    Args:
        store: notes uses.
        private: the registry.
        pulled: the name under which an image is pulled.
    """

    def __init__(self, store: RegistryStore, private: PrivateRegistry, pulled: Callable[[str], str]) -> None:
        self._store = store
        self._private = private
        self._pulled = pulled

    def on(self, transition: Transition) -> None:
        """Follows a change of a record."""
        sandbox = transition.after
        if not transition.here or Effect.UNROUTE not in transition.effects:
            return
        if GROUP not in sandbox.spec.labels or not sandbox.image_ran:
            return
        source = parse(self._pulled(sandbox.spec.image))
        form: Form = "estargz" if sandbox.image_pulled == "lazy" else "plain"
        self._store.note(self._private.repository(source, form), sandbox.image_ran)
