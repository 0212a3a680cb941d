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


@dataclass(frozen=True, kw_only=True)
class Odd(Settings, section="odd"):
    """A setting of each type."""

    name: str = setting("a", "a name")
    share: float = setting(1.0, "a number")
    seed: int | str = setting("own", "a whole number or a word")
    dropout: float | str = setting("auto", "a number or a word")
    listed: str = setting("red", "one of a list that grows", choices=lambda: ("red", "green"))
    fewest: int = setting(2, "limits that hold themselves", least=2, most=2)
    outer: Outer = field(default_factory=Outer)


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("name", 2024, "2024"),
        ("name", 0.5, "0.5"),
        ("share", 3, 3.0),
        ("share", "1e-6", 1e-6),
        ("share", "-.5", -0.5),
        ("share", 2**53, 2.0**53),
        ("seed", "own", "own"),
        ("seed", -(2**53), -(2**53)),
        ("dropout", "auto", "auto"),
        ("dropout", "0.5", 0.5),
        ("dropout", 1, 1.0),
        ("listed", "green", "green"),
        ("fewest", 2, 2),
    ],
)
def test_a_value_from_yaml_or_an_option_becomes_the_type_of_its_setting(name, given, value):
    found = getattr(build_settings(Odd, {name: given}, "odd"), name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"name": True}, "odd.name must be text, got True"),
        ({"name": None}, "odd.name must be text, got None"),
        ({"name": ["a"]}, "odd.name must be text, got ['a']"),
        ({"share": "much"}, "odd.share must be a number, got 'much'"),
        ({"share": True}, "odd.share must be a number, got True"),
        ({"share": None}, "odd.share must be a number, got None"),
        ({"share": "nan"}, "odd.share must be a finite number, got nan"),
        ({"share": 2**53 + 1}, "odd.share must be at most 2^53, got 9007199254740993"),
        ({"share": -(2**53) - 1}, "odd.share must be at most 2^53, got -9007199254740993"),
        ({"seed": 1.0}, "odd.seed must be a whole number or text, got 1.0"),
        ({"seed": False}, "odd.seed must be a whole number or text, got False"),
        ({"seed": None}, "odd.seed must be a whole number or text, got None"),
        ({"listed": "gren"}, "odd.listed must be one of red, green, got 'gren' (did you mean green?)"),
        ({"fewest": 1}, "odd.fewest must be at least 2 and at most 2, got 1"),
        ({"fewest": 3}, "odd.fewest must be at least 2 and at most 2, got 3"),
        ({"outer": 3}, "odd.outer must be a mapping of setting names to values, got 3"),
        ({"outer": {"on": None}}, "odd.outer.on must be true or false, got None"),
        ({"outer": {"sensor": 7}}, "odd.outer.sensor: a sensor must be WIDTHxHEIGHT, such as 346x260, got "),
        ({"outer": {"sensor": {"width": 7}}}, "height"),
        ({"outer": {"sensor": {"width": 7, "height": 0}}}, "sensor height must be from 1 to 65536, got 0"),
        ({7: 1}, "unknown setting odd.7; odd accepts name, share, seed"),
    ],
)
def test_a_value_of_another_type_is_one_line_with_the_full_name(content, message):
    with pytest.raises(Event2VecError) as caught:
        build_settings(Odd, content, "odd")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("size", ["7x5", {"width": 7, "height": 5}, Sensor(7, 5)])
def test_a_sensor_is_read_as_yaml_and_as_json_have_it(size):
    assert build_settings(Outer, {"sensor": size}, "outer").sensor == Sensor(7, 5)


@pytest.mark.parametrize("content", [None, [], "a", 3])
def test_what_is_no_set_of_names_is_refused_by_the_name_that_it_has(content):
    with pytest.raises(Event2VecError, match=r"^outer must be a mapping of setting names to values, got "):
        build_settings(Outer, content, "outer")
    with pytest.raises(Event2VecError, match=r"^the recipe must be a mapping of setting names to values, got "):
        build_settings(Outer, content)


def test_at_the_top_names_have_no_section():
    with pytest.raises(
        Event2VecError, match=r"^unknown setting epochs; a recipe accepts kind, count, on, sensor, inner$"
    ):
        build_settings(Outer, {"epochs": 3})


def test_a_setting_without_a_default_must_be_given():
    @dataclass(frozen=True, kw_only=True)
    class Needy(Settings):
        wanted: int

    assert build_settings(Needy, {"wanted": 3}).wanted == 3
    with pytest.raises(Event2VecError, match="missing 1 required keyword-only argument: 'wanted'"):
        build_settings(Needy, {})


def test_help_names_both_types_of_a_union_and_lists_that_grow():
    expected = {each.name: each.expected for each in describe_settings(Odd())}
    assert expected["dropout"] == "a number or text"
    assert expected["listed"] == "red | green"
    assert expected["fewest"] == "a whole number, at least 2 and at most 2"
    assert expected["outer.inner.share"] == "a number, above 0 and below 1", "sections in sections have both names"
    assert choices_of(Odd, "name") == ()


def test_every_kind_of_section_can_be_written_and_read_again():
    odd = Odd(name="b", dropout=0.25, seed=5, outer=Outer(sensor=Sensor(9, 2), inner=Inner(share=0.125)))
    plain = plain_settings(odd)
    assert plain["outer"]["sensor"] == "9x2"
    assert build_settings(Odd, plain, "odd") == odd
    assert plain_settings(Sensor) is Sensor, "a class is no section"
