"""Recipes: the paper's numbers, one clear line for each mistake, and YAML that comes back as it was."""

from dataclasses import replace
from typing import cast

import pytest
import yaml

from event2vec import Event2VecError, ModelConfig, Sensor, build_model, load_recipe
from event2vec.baselines import NETWORKS
from event2vec.cli import build_parser
from event2vec.documents import RECIPES
from event2vec.model.classifier import count_parameters
from event2vec.model.masked import build_masked_model
from event2vec.training.recipe import Recipe, recipes_by_use


def test_all_recipes_of_the_design_are_there():
    expected = {"asl_dvs", "digits", "dvs_gesture", "dvs_lip", "dvs_lip_pretrain", "dvs_lip_random", "folder"}
    expected |= {"folder_raw", "nmnist", "event_mae_pretrain"}
    compared = {f"{name}{size}" for name in NETWORKS for size in ("", "_published")} - {"frame_cnn_published"}
    assert set(RECIPES.names()) == expected | compared


def test_every_recipe_is_shown_once_in_its_group_and_those_of_the_authors_can_be_imported():
    groups = recipes_by_use()
    assert sorted(name for names in groups.values() for name in names) == RECIPES.names()
    assert (groups["yours"], groups["to try"]) == (["folder", "folder_raw"], ["digits", "nmnist"])
    assert groups["the paper's"] == ["asl_dvs", "dvs_gesture", "dvs_lip", "dvs_lip_pretrain", "dvs_lip_random"]
    assert groups["compared systems"][:3] == ["efv", "event_mae", "event_mae_pretrain"]
    shown = " ".join(build_parser("train").format_help().split())
    assert "yours: folder, folder_raw; to try: digits, nmnist; the paper's: asl_dvs" in shown
    shown = " ".join(build_parser("import").format_help().split())
    assert "trained for: dvs_gesture, asl_dvs, dvs_lip, dvs_lip_pretrain; or a file" in shown


@pytest.mark.parametrize("name", RECIPES.names())
def test_a_recipe_comes_back_as_it_was(name, tmp_path):
    recipe = load_recipe(name)
    (tmp_path / "again.yaml").write_text(recipe.to_yaml())
    assert load_recipe(tmp_path / "again.yaml") == recipe
    assert recipe.name == name


def test_sizes_are_those_of_the_paper():
    sizes = {
        name: count_parameters(build_model(load_recipe(name).model)) for name in ("dvs_gesture", "asl_dvs", "dvs_lip")
    }
    assert sizes == {"dvs_gesture": 137_619, "asl_dvs": 71_580, "dvs_lip": 4_799_236}
    build_masked_model(load_recipe("dvs_lip_pretrain").model)


def test_the_papers_settings_are_the_papers():
    gesture, lip = load_recipe("dvs_gesture"), load_recipe("dvs_lip")
    assert (gesture.sampling.length, gesture.training.repeats, gesture.augment.probability) == (4096, 24, 0.6)
    assert (gesture.training.clip, gesture.training.weight_decay, gesture.training.epochs) == (1.0, 0.0, 64)
    assert (lip.training.weight_decay, lip.objective.label_smoothing, lip.objective.token_mix) == (0.05, 0.1, 0.5)
    assert cast(ModelConfig, lip.model).drop_path == 0.4
    assert (lip.augment.forget_intensity, lip.training.final_learning_rate) == (0.1, 1e-6)
    assert load_recipe("dvs_lip_random").sampling.method == "random"
    assert all(load_recipe(name).trainer.precision == "auto" for name in ("dvs_gesture", "asl_dvs", "dvs_lip"))


def test_settings_are_changed_by_their_names():
    recipe = Recipe().with_settings({"model.sensor": "40x30", "training.epochs": 3, "objective.mask.share": 0.2})
    assert recipe.model.sensor == Sensor(40, 30)
    assert recipe.training.epochs == 3
    assert recipe.objective.mask.share == 0.2
    assert recipe.with_settings({"training.learning_rate": 1}).training.learning_rate == 1.0
    assert recipe.with_settings({"training.learning_rate": "1e-6"}).training.learning_rate == 1e-6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"model": {"head": 2}},
            r"unknown setting model.head \(did you mean heads\?\); model accepts network, sensor, classes",
        ),
        ({"modle": {}}, r"unknown setting modle \(did you mean model\?\); a recipe accepts name, data"),
        ({"model": {"dim": "big"}}, "model.dim must be a whole number, got 'big'"),
        ({"model": {"pooling": 1}}, "model.pooling must be true or false, got 1"),
        ({"training": {"epochs": True}}, "training.epochs must be a whole number, got True"),
        ({"training": {"clip": "much"}}, "training.clip must be a number, got 'much'"),
        ({"model": {"spatial": "tabel"}}, "model.spatial must be one of parametric, lookup, got 'tabel'"),
        ({"model": {"sensor": "big"}}, "model.sensor: a sensor must be WIDTHxHEIGHT"),
        ({"model": {"dim": 66}}, "model.dim must be a multiple of 4"),
        ({"sampling": {"length": 0}}, "sampling.length must be at least 1"),
        ({"training": []}, r"training must be a mapping of setting names to values, got \[\]"),
        ({"training": {"batch": 0}}, "training.batch must be at least 1"),
        ({"data": {"workers": -1}}, "data.workers must be at least 0, got -1"),
        ([1], "the recipe must be a mapping of setting names to values"),
    ],
)
def test_a_mistake_is_one_clear_line(tmp_path, content, message):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(Event2VecError, match=f"mine.yaml: {message}") as caught:
        load_recipe(path)
    assert "\n" not in str(caught.value)


def test_settings_that_go_together_can_be_changed_together():
    changed = load_recipe("dvs_lip").with_settings({"model.dim": 64, "model.heads": 2})
    assert changed.model == replace(cast(ModelConfig, load_recipe("dvs_lip").model), dim=64, heads=2)
    assert Recipe().with_settings({"trainer.precision": 32}).trainer.precision == "32"
    with pytest.raises(Event2VecError, match=r"final_learning_rate must not be above"):
        Recipe().with_settings({"training.final_learning_rate": 9})


def test_files_that_are_no_recipe(tmp_path):
    with pytest.raises(Event2VecError, match=r"unknown recipe 'digit' \(did you mean digits\?\)"):
        load_recipe("digit")
    with pytest.raises(Event2VecError, match=r"none\.yaml: does not exist\. Check the name and the folder"):
        load_recipe(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(Event2VecError, match="is not YAML"):
        load_recipe(tmp_path / "bad.yaml")
    (tmp_path / "code.yaml").write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(Event2VecError, match="cannot be used"):
        load_recipe(tmp_path / "code.yaml")
    with pytest.raises(Event2VecError, match=r"unknown setting model.block \(did you mean model.blocks\?\)"):
        Recipe().with_settings({"model.block": 1})


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("epochs", 3, " (did you mean training.epochs, given as training={'epochs': 3}?)"),
        ("learning_rat", 0.1, " (did you mean training.learning_rate, given as training={'learning_rate': 0.1}?)"),
        ("bins", 5, " (did you mean model.bins, given as model={'bins': 5}?)"),  # of another network
        ("nonsense", 1, ""),
    ],
)
def test_a_setting_without_its_section_is_found_by_its_own_name(name, value, hint):
    with pytest.raises(Event2VecError) as refused:
        Recipe().with_settings({name: value})
    assert str(refused.value) == f"unknown setting {name}{hint}"


@pytest.mark.parametrize(
    ("section", "example"),
    [("training", "{'epochs': 64}"), ("model", "{'classes': 11}"), ("data", "{'validation': 0.1}")],
)
def test_a_section_that_holds_no_settings_is_not_called_unknown(section, example):
    with pytest.raises(Event2VecError) as refused:
        Recipe().with_settings({section: 3})
    assert str(refused.value) == f"{section} must be settings, such as {example}, got 3"


@pytest.mark.parametrize("name", ["one.yaml", "two.yaml"])
def test_a_recipe_builds_on_another(tmp_path, name):
    (tmp_path / "one.yaml").write_text("base: folder\nmodel: {blocks: 3}\nobjective: {mask: {share: 0.2}}")
    (tmp_path / "two.yaml").write_text("base: one.yaml\nname: mine\ntraining: {epochs: 7}")
    changes = {"name": "one", "model.blocks": 3, "objective.mask.share": 0.2}
    if name == "two.yaml":
        changes |= {"name": "mine", "training.epochs": 7}
    recipe = load_recipe(tmp_path / name)
    assert recipe == load_recipe("folder").with_settings(changes)
    assert "base" not in yaml.safe_load(recipe.to_yaml()), "a saved recipe is complete"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("base: beside", r"mine.yaml: unknown recipe 'beside' \(did you mean beside\.yaml\?\)"),
        ("base: foldr", r"mine.yaml: unknown recipe 'foldr' \(did you mean folder\?\)"),
        ("base: 7", "mine.yaml: base must be the name of a recipe or a file that ends in .yaml, got 7"),
        (
            'base: "a\\0.yaml"',
            r"mine.yaml: base must be the name of a recipe or a file that ends in .yaml, got 'a\\x00",
        ),
        (
            f"base: {'x' * 5000}.yaml",
            "mine.yaml: base must be the name of a recipe or a file that ends in .yaml, got 'xx",
        ),
        ("base: mine.yaml", "mine.yaml: base 'mine.yaml' builds on this recipe itself"),
        ("base: other.yaml", "other.yaml: base './mine.yaml' builds on this recipe itself"),
        ("base: none.yaml", "none.yaml: does not exist"),
        ("base: bad.yaml", "bad.yaml: model.dim must be a whole number"),
        ("base: folder\nmodel: 3", "mine.yaml: model must be a mapping of setting names to values, got 3"),
        ("base: long0.yaml", "more than 10 recipes build on each other"),
    ],
)
def test_a_base_that_cannot_be_used_is_one_clear_line(tmp_path, content, message):
    (tmp_path / "mine.yaml").write_text(content)
    (tmp_path / "beside.yaml").touch()
    (tmp_path / "other.yaml").write_text("base: ./mine.yaml")
    (tmp_path / "bad.yaml").write_text("model: {dim: big}")
    for number in range(20):
        (tmp_path / f"long{number}.yaml").write_text(f"base: long{number + 1}.yaml")
    with pytest.raises(Event2VecError, match=message) as caught:
        load_recipe(tmp_path / "mine.yaml")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_recipes_of_the_package_that_build_on_another_differ_in_a_few_settings():
    random = {"name": "dvs_lip_random", "sampling.method": "random", "augment.forget_intensity": 0}
    assert load_recipe("dvs_lip_random") == load_recipe("dvs_lip").with_settings(random)
    digits = {"name": "nmnist", "data.dataset": "nmnist", "model.sensor": "34x34", "model.classes": 10}
    digits |= {"model.drop_path": 0.2, "model.drop_tokens": 0.8, "training.epochs": 150}
    digits |= {"augment.probability": 0.85, "augment.shear": 0.2}
    assert load_recipe("nmnist") == load_recipe("folder").with_settings(digits)


def test_a_recipe_without_a_name_is_called_as_its_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("")
    assert load_recipe(tmp_path / "mine.yaml") == Recipe(name="mine")
