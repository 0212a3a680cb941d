"""Devices and number types: what was asked for, else the best there is; what does not work is said."""

import pytest
import torch

from event2vec import Event2VecError
from event2vec.devices import CPU, Compute, find_device


def test_the_best_device_is_found():
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert find_device().type == best
    assert find_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "xpu"])
def test_a_device_that_is_missing_is_said(name):
    with pytest.raises(Event2VecError, match=f"--device {name} does not work here: .*Try cpu, cuda") as caught:
        find_device(name)
    assert "\n" not in str(caught.value)


def test_bfloat16_is_for_cuda_or_asked_for(monkeypatch):
    assert Compute.choose("cpu", None, "bf16-mixed") == CPU
    assert Compute.choose("cpu", "bf16-mixed", "32-true").precision == "bf16-mixed"
    monkeypatch.setattr("event2vec.devices.find_device", lambda name: torch.device("cuda"))  # there is none here
    assert Compute.choose(None, None, "bf16-mixed").precision == "bf16-mixed"
    assert Compute.choose(None, None, "32-true").precision == "32-true"
    assert Compute.choose(None, "32-true", "bf16-mixed").precision == "32-true"
    with pytest.raises(Event2VecError, match="--precision must be one of 32-true, bf16-mixed, got 'fp8'"):
        Compute.choose(None, "fp8")


def test_a_product_within_runs_in_its_number_type():
    matrix = torch.ones(4, 4)
    with Compute(torch.device("cpu"), "bf16-mixed").autocast():
        assert (matrix @ matrix).dtype == torch.bfloat16
    with CPU.autocast():
        assert (matrix @ matrix).dtype == torch.float32
    CPU.synchronise()
    CPU.forget_peak()
    assert CPU.peak_bytes() is None
