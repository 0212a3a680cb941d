"""Settings of the process, in a process of their own."""

import subprocess
import sys

TUNED = """
import torch
from event2vec.machine import tune_cpu
tiny = torch.full((100_000,), 1e-40)
assert (tiny * 0.5).any()
tune_cpu()
assert not (torch.full((10,), 1e-40) * 0.5).any(), "numbers below 1e-38 become 0"
"""


def test_tiny_numbers_become_zero():
    subprocess.run([sys.executable, "-c", TUNED], check=True)
