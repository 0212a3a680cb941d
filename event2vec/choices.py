"""Names that a user chooses between: one list for each, read by the library and by `--help`, which loads no numpy."""

from typing import Literal

Suffix = Literal[".npz", ".aedat4", ".raw", ".dat", ".h5", ".hdf5", ".csv", ".txt"]  # recordings that can be written
TimeUnit = Literal["s", "ms", "us", "ns"]
Orientation = Literal["upright", "mat", "spikingjelly"]  # of ASL-DVS
Seeding = Literal["pruned", "plain"]  # of cluster centres
FoldsOver = Literal["train", "all"]
Precision = Literal["32-true", "bf16-mixed"]
Smoothing = Literal["none", "mean", "hmm"]  # of answers over time
