"""Kills at moments that matter, for real: the same command then ends with the same bytes. `make kill` has many more."""

import sys
from functools import partial

import pytest
from kill import VERBS, compare, kill_once, make_common, measure, wait_for_file

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("kill")
    make_common(root, with_run=False)
    return root


@pytest.mark.parametrize(
    ("name", "moments"),
    [
        ("prepare", ["store.partial/train-*"]),
        ("train", ["run/checkpoints/last.ckpt", "run/evaluation/.confusion*"]),
        ("convert", [".out.aedat4.*"]),
    ],
)
def test_the_same_command_ends_with_the_same_bytes_after_a_kill(root, name, moments):
    verb = VERBS[name]
    expected, _ = measure(verb, root / f"{name}-undisturbed")
    for number, pattern in enumerate(moments):
        trial = root / f"{name}-{number}"
        kill_once(verb, trial, partial(wait_for_file, pattern=pattern))
        compare(verb, trial, expected)
