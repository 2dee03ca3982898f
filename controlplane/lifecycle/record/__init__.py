"""Records: the pure table of states, the ledger that changes them, and what follows from a change.

``states`` is pure and says what may happen and what follows; ``ledger`` is the only place where a record changes;
``recovering_store`` is the store as everything here sees it.
"""
