"""Kills at moments that matter, for real: the same command then ends with the same bytes. `make kill` has many more."""

from functools import partial

import pytest
from kill import VERBS, compare, kill_once, make_common, measure, start_forked, wait_for_file
from processes import NEEDS_PROC

pytestmark = [pytest.mark.slow, NEEDS_PROC]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("kill")
    make_common(root, with_run=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kill.start", start_forked)
        yield root


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
        for attempt in range(10):
            trial = root / f"{name}-{number}-{attempt}"
            in_time = kill_once(verb, trial, partial(wait_for_file, pattern=pattern)).in_time
            compare(verb, trial, expected)
            if in_time:
                break
        assert in_time, f"it always ended before it was killed at {pattern}"
