"""What a run's calls have told: bounded in memory, whatever their number. Pure but for the clocks that it is given.

Layers, lowest first: tails, shares, phases < recorder < current (which recorder a call belongs to).
"""
