"""Settings of the process, in a process of their own."""

import os
import subprocess
import sys

from processes import run_python

TUNED = """
import numpy as np, torch
from event2vec.machine.cpu import flush_denormals, tune_cpu
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
    run_python("-c", TUNED, check=True)


THREADS = """
import torch
from event2vec.machine.cpu import tune_cpu
torch.set_num_threads(2)
tune_cpu()
halved = torch.full((1 << 20,), 1e-40) * 0.5
assert halved[0] > 0, "the calling thread does the first part"
assert halved[-1] == 0, "a thread of torch's own does the last"
"""


def test_torchs_own_threads_flush_denormals():
    run_python("-c", THREADS, check=True)


ALONE = """
import threading, torch
from event2vec import EventBatch, Events, build_model, load_recipe
from event2vec.machine.cpu import on_one_thread
torch.set_num_threads(2)
found = []
with on_one_thread():
    assert torch.get_num_threads() == 1
    assert "mkl_get_max_threads() : 2" not in torch.__config__.parallel_info(), "its products too"
    other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    other.start()
    other.join()
assert found == [2], "a thread that starts meanwhile computes as ever"
assert torch.get_num_threads() == 2
recipe = load_recipe("digits")
model = build_model(recipe.model, sampling=recipe.sampling).eval()
n = torch.arange(128)
events = Events.from_arrays(n % 34, n % 31, n, n % 2, sensor=(34, 34))
with torch.no_grad():
    expected = model(EventBatch.pad([events])).softmax(dim=-1)[0]
threads = []
model.head.register_forward_pre_hook(lambda *_: threads.append(torch.get_num_threads()))
assert torch.equal(model.predict(events).scores, expected)
assert (threads, torch.get_num_threads()) == ([1], 2), "a short recording is answered on one thread, to the same bits"
"""


def test_short_recordings_are_answered_on_the_calling_thread_alone():
    run_python("-c", ALONE, check=True)


ORDER = """
import sys, torch
from event2vec import ModelConfig, build_model
build_model(ModelConfig())
torch.set_num_threads(int(sys.argv[1]))
generator = torch.Generator().manual_seed(0)
left, right = torch.randn(1000, 96, generator=generator), torch.randn(96, 160, generator=generator)
found = [left @ right, left.T @ left, (left[:, :64] @ right[:64]).mT @ left]
print([hex(hash(part.numpy().tobytes())) for part in found])
"""


def test_products_are_the_same_to_the_bit_for_any_number_of_threads():
    """With a network in the process; MKL on Intel's processors would otherwise add in another order."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    answers = [
        subprocess.run(
            [sys.executable, "-c", ORDER, str(threads)],
            check=True,
            timeout=900,
            env=environment,
            stdout=subprocess.PIPE,
        ).stdout
        for threads in (1, 2, 3)
    ]
    assert len(set(answers)) == 1
