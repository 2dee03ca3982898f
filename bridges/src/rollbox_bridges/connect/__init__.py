"""The Connect protocol, as far as servers of it need it: envelopes, codecs, errors. Pure.

E2B and Prime Sandboxes speak it; what they say in it is theirs.
"""
