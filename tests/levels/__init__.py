"""The levels of tests: which there are, what each may cost, how they are run and what their failures mean.

    python -m tests.levels             what everybody runs (`make test`)
    python -m tests.levels NAME ...    these levels or groups of levels
    python -m tests.levels gate        what has to pass before a change lands

With CI=true a level that cannot run is a failure.
"""
