"""Settings of the process, in a process of their own."""

import subprocess
import sys

TUNED = """
import numpy as np, torch
from event2vec.cpu import flush_denormals, tune_cpu
tune_cpu()
tiny = np.full(10, 1e-310)
assert (tiny * 0.5).any(), "other libraries compute as ever"
assert (torch.full((10,), 1e-40) * 0.5).any()
with flush_denormals():
    assert not (torch.full((10,), 1e-40) * 0.5).any(), "numbers below 1e-38 become 0"
assert (tiny * 0.5).any()
from scipy.spatial import cKDTree
cKDTree(np.array([[0.0]] * 15 + [[2.0]] * 5)).query([[1.0]])
"""


def test_only_torch_flushes_denormals_and_only_where_it_is_asked_to():
    subprocess.run([sys.executable, "-c", TUNED], check=True, timeout=900)


THREADS = """
import torch
from event2vec.cpu import tune_cpu
torch.set_num_threads(2)
tune_cpu()
halved = torch.full((1 << 20,), 1e-40) * 0.5
assert halved[0] > 0, "the calling thread does the first part"
assert halved[-1] == 0, "a thread of torch's own does the last"
"""


def test_torchs_own_threads_flush_denormals():
    subprocess.run([sys.executable, "-c", THREADS], check=True, timeout=900)
