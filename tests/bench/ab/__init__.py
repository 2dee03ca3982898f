"""Hand-made parts of the control plane against the library's way, in turns within one run.

``plane`` is a control plane in which parts are replaced by the library's way (``ways``); ``turns`` measures several of
them in turn. A part that moves no figure by a tenth is replaced by the library, and its bench deleted.
docs/benchmarks.md has the rule and the results.
"""
