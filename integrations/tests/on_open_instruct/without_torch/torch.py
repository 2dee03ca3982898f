"""Stands for torch, which takes gigabytes, and of which open-instruct's environments read the names of two types."""


class Tensor:
    """A type in the annotations of batches."""


device = str
