"""`rollbox-docker`: the Docker command line as far as programs call it, for a bridge on this machine.

The standard library alone: a program that calls it for every command of an agent waits for its imports each time.
"""
