"""Arguments that many functions share: the same by name and as one object, and none is dropped."""

from dataclasses import fields
from typing import Any

import pytest

from event2vec import Progress, Run, compare, evaluate_runs, experiment
from event2vec.execution import Execution, ExecutionOptions
from event2vec.io.recording import Reading, ReadingOptions


def test_arguments_by_name_and_the_object_that_hands_them_on_are_the_same():
    assert set(ExecutionOptions.__annotations__) == {field.name for field in fields(Execution)}
    given = Execution(workers=3, device="cpu", precision="32-true", progress=Progress())
    assert Execution(**given.options) == given
    assert set(ReadingOptions.__annotations__) == {field.name for field in fields(Reading)} - {"usual"}


def test_an_argument_that_does_not_exist_is_refused(tmp_path):
    wrong: dict[str, Any] = {"worker": 2}
    for call in (
        lambda: compare(tmp_path, ["event2vec"], **wrong),
        lambda: experiment("sharing", tmp_path, **wrong),
        lambda: evaluate_runs([], **wrong),
        lambda: Run(tmp_path).evaluate(**wrong),
    ):
        with pytest.raises(TypeError, match="unexpected keyword argument 'worker'"):
            call()
