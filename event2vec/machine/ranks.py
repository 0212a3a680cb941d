"""Distributed training: launchers number the processes, and the first one writes and prints for all."""

import os

RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # set by launchers
SIZES = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")  # how many processes they have started
LAUNCHERS = ("SLURM_", "TORCHELASTIC_")  # how all their other variables begin


def is_first_rank() -> bool:
    """Whether this process writes and prints for all. A single process does."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)


def has_launcher() -> bool:
    """Whether torchrun or srun has started several processes, and this is one of them."""
    return any(os.environ.get(name, "1") != "1" for name in SIZES)


def forget_launcher() -> None:
    """Leave the group of processes that a launcher started: this one has inherited its number from its parent."""
    for name in list(os.environ):
        if name in (*RANKS, *SIZES) or name.startswith(LAUNCHERS):
            del os.environ[name]
