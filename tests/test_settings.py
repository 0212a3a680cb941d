"""Settings: one place that checks them, and that knows how help shows them."""

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Literal, get_args

import pytest

from event2vec import Event2VecError, ModelConfig, Sampling, Sensor
from event2vec.clustering import Seeding
from event2vec.settings import Settings, build_settings, choices_of, describe_settings, plain_settings, setting
from event2vec.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Inner(Settings, section="outer.inner"):
    share: float = setting(0.5, "a share", above=0, below=1)


@dataclass(frozen=True, kw_only=True)
class Outer(Settings, section="outer"):
    kind: Literal["small", "large"] = setting("small", "its size")
    count: int = setting(3, "how many", least=1, most=9)
    on: bool = setting(True, "whether")
    sensor: Sensor = setting(Sensor(4, 3), "the pixels")
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"count": 0}, "outer.count must be at least 1 and at most 9, got 0"),
        ({"count": 10}, "outer.count must be at least 1 and at most 9, got 10"),
        ({"inner": {"share": 1}}, "outer.inner.share must be above 0 and below 1, got 1.0"),
        ({"inner": {"share": 0.0}}, "outer.inner.share must be above 0 and below 1, got 0.0"),
        ({"inner": {"share": float("nan")}}, "outer.inner.share must be a finite number, got nan"),
        ({"kind": "larg"}, "outer.kind must be one of small, large, got 'larg' (did you mean large?)"),
        ({"kind": []}, "outer.kind must be one of small, large, got []"),
        ({"cuont": 3}, "unknown setting outer.cuont (did you mean count?); outer accepts kind, count, on"),
        ({"on": 1}, "outer.on must be true or false, got 1"),
        ({"count": 2**60}, "outer.count must be at most 2^53"),
        ({"sensor": "4"}, "outer.sensor: a sensor must be WIDTHxHEIGHT"),
    ],
)
def test_what_a_file_says_wrongly_is_one_line_with_the_full_name(content, message):
    with pytest.raises(Event2VecError) as caught:
        build_settings(Outer, content, "outer")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (Outer, {"count": 0}, r"outer\.count must be at least 1"),
        (Inner, {"share": 2.0}, r"outer\.inner\.share must be above 0"),
        (ModelConfig, {"dim": 12}, r"model\.dim must be at least 16, got 12"),
        (ModelConfig, {"forget_bias": float("inf")}, r"model\.forget_bias must be a finite number"),
        (Sampling, {"length": 0}, r"sampling\.length must be at least 1"),
        (Sampling, {"length": 1, "method": "clusters"}, r"sampling\.length must be at least 2"),
    ],
)
def test_sections_built_in_python_get_the_same_checks(section, values, message):
    with pytest.raises(ValueError, match=message):
        section(**values)


def test_what_was_written_is_built_again():
    outer = Outer(count=5, kind="large", inner=Inner(share=0.25))
    assert build_settings(Outer, plain_settings(outer), "outer") == outer


def test_help_gets_names_types_choices_limits_and_values():
    shown = [(each.name, each.expected, each.value, each.explanation) for each in describe_settings(Outer(count=7))]
    assert shown == [
        ("kind", "small | large", "small", "its size"),
        ("count", "a whole number, at least 1 and at most 9", "7", "how many"),
        ("on", "true or false", "true", "whether"),
        ("sensor", "WIDTHxHEIGHT", "4x3", "the pixels"),
        ("inner.share", "a number, above 0 and below 1", "0.5", "a share"),
    ]


def test_every_setting_of_a_recipe_is_explained():
    assert all(len(each.explanation) > 8 for each in describe_settings(Recipe()))


def test_seedings_that_can_be_set_are_those_that_clustering_has():
    assert choices_of(Sampling, "seeding") == get_args(Seeding)


def test_recipes_are_read_without_torch():
    script = "import sys, event2vec; from event2vec.training.recipe import load_recipe; event2vec.Sampling(length=3)\n"
    script += (
        "load_recipe('dvs_lip_random'); print([name for name in ('torch', 'numpy', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "[]\n"
