"""Settings as options: of the recipe that was named, read as YAML, with short names where `prepare` has them."""

import pytest

from event2vec import Event2VecError, ModelConfig, load_recipe
from event2vec.baselines.config import FrameCnnConfig
from event2vec.cli.parser import Parser
from event2vec.cli.recipe_options import add_recipe_arguments, check_recipe_options, overrides, read_recipe


def parse(*arguments):
    parser = Parser("train", "Train.")
    add_recipe_arguments(parser)
    return parser.parse(list(arguments))


def test_a_recipe_is_read_with_the_settings_that_were_given():
    recipe = read_recipe(parse("digits", "--training.epochs", "3", "--model.pooling", "true"), "train")
    assert isinstance(recipe.model, ModelConfig)
    assert (recipe.training.epochs, recipe.model.pooling) == (3, True)
    assert recipe.sampling == load_recipe("digits").sampling
    assert read_recipe(parse("digits", "--training.learning_rate", "1e-3"), "train").training.learning_rate == 0.001


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--training.epochs", "3"), {"training.epochs": 3}),
        (("--training.learning_rate", "0.001"), {"training.learning_rate": 0.001}),
        (("--group-by", "[a-z]*"), {"data.group_by": "[a-z]*"}),
        (("--data.group_by", "none"), {"data.group_by": "none"}),
        (("--window", "0.5", "--stride", "0.25"), {"data.window": 0.5, "data.stride": 0.25}),
        ((), {}),
    ],
)
def test_only_what_was_given_overrides(arguments, found):
    assert overrides(parse("folder", *arguments)) == found


def test_settings_of_the_network_are_those_of_the_recipe():
    model = read_recipe(parse("frame_cnn", "--model.bins", "4"), "train").model
    assert isinstance(model, FrameCnnConfig)
    assert model.bins == 4
    with pytest.raises(Event2VecError, match="bins"):
        read_recipe(parse("digits", "--model.bins", "4"), "train")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "RECIPE is required, such as folder for your own recordings"),
        (("folder",), "`data` is required: a prepared store"),
        (("digits", "--training.epochs", "["), "--training.epochs is not YAML"),
        (("digits", "--training.epochs", "-3"), "training.epochs must be at least 1, got -3"),
    ],
)
def test_what_can_be_refused_early_is(arguments, message):
    with pytest.raises(Event2VecError, match=message):
        check_recipe_options(parse(*arguments), "train")


def test_a_resumed_run_and_printed_settings_need_no_data(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    check_recipe_options(parse("--resume", str(tmp_path)), "train")
    check_recipe_options(parse("folder", "--print-config"), "train")
    check_recipe_options(parse("digits"), "train")
