"""Files of a sandbox. Layers, lowest first: paths, info, frames, pack, unpack < transfer < handle."""

from rollbox.files.handle import Files
from rollbox.files.info import FileChange, FileInfo, Listing, TransferReport

__all__ = ["FileChange", "FileInfo", "Files", "Listing", "TransferReport"]
