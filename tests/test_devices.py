"""Devices and number types: what was asked for, else the best there is; what does not work is said."""

import pytest
import torch

from event2vec import Event2VecError
from event2vec.machine.devices import CPU, Compute, find_device, training_precision
from event2vec.machine.ranks import RANKS, is_first_rank


def test_the_best_device_is_found():
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert find_device().type == best
    assert find_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    "name", ["gpu", "xpu", "meta", "hpu", "vulkan", "xla", "cuda:", "cuda:999", "cpu:1", "", "x" * 999]
)
def test_a_device_of_another_kind_is_refused_by_its_name(name):
    with pytest.raises(Event2VecError, match=r"`device` must be cpu, cuda, cuda:1 .* or mps, got '") as caught:
        find_device(name)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("name", ["cuda:99", "mps"])
def test_a_device_that_is_missing_is_said(name):
    if name == "mps" and torch.backends.mps.is_available():
        pytest.skip("there is one here")
    with pytest.raises(Event2VecError, match=f"`device` {name} does not work here: .*Try cpu") as caught:
        find_device(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("variables", "first"),
    [
        ({}, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "2", "LOCAL_RANK": "0"}, False),
        ({"LOCAL_RANK": "1"}, False),
        ({"NODE_RANK": "1", "LOCAL_RANK": "0"}, False),
        ({"SLURM_PROCID": "3"}, False),
    ],
)
def test_one_of_the_processes_that_a_launcher_starts_is_the_first(variables, first, monkeypatch):
    for name in RANKS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_first_rank() == first


def test_bfloat16_is_for_cuda_or_asked_for(monkeypatch):
    assert Compute.choose("cpu", None, "bf16-mixed") == CPU
    assert Compute.choose("cpu", "bf16-mixed", "32-true").precision == "bf16-mixed"
    monkeypatch.setattr(
        "event2vec.machine.devices.find_device", lambda name: torch.device("cuda")
    )  # there is none here
    assert Compute.choose(None, None, "bf16-mixed").precision == "bf16-mixed"
    assert Compute.choose(None, None, "32-true").precision == "32-true"
    assert Compute.choose(None, "32-true", "bf16-mixed").precision == "32-true"
    with pytest.raises(Event2VecError, match="`precision` must be one of 32-true, bf16-mixed, got 'fp8'"):
        Compute.choose(None, "fp8")


@pytest.mark.parametrize(("there", "has_bfloat16"), [(False, False), (True, False), (True, True)])
def test_auto_is_bfloat16_on_gpus_that_have_it(there, has_bfloat16, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bfloat16)
    best = "bf16-mixed" if has_bfloat16 else "32-true"
    assert [training_precision("auto", name) for name in ("auto", "gpu", "cuda")] == [best] * 3
    assert [training_precision("auto", name) for name in ("cpu", "mps")] == ["32-true"] * 2
    assert training_precision("bf16-mixed", "cpu") == "bf16-mixed", "what a recipe names is what it gets"
    monkeypatch.setattr("event2vec.machine.devices.find_device", lambda name: torch.device(name))
    assert Compute.choose("cuda", None, "auto").precision == best
    assert Compute.choose("cpu", None, "auto") == CPU


def test_a_product_within_runs_in_its_number_type():
    matrix = torch.ones(4, 4)
    with Compute(torch.device("cpu"), "bf16-mixed").autocast():
        assert (matrix @ matrix).dtype == torch.bfloat16
    with CPU.autocast():
        assert (matrix @ matrix).dtype == torch.float32
    CPU.synchronise()
    CPU.forget_peak()
    assert CPU.peak_bytes() is None
