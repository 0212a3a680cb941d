"""Distributed training: launchers number the processes, and the first one writes and prints for all."""

import os

RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # set by launchers


def is_first_rank() -> bool:
    """Whether this process writes and prints for all. A single process does."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)
