"""Figures of runs in one folder: which are drawn, of what, under which names, and what is missing."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import randomise
from trainings import RECIPE, make_store

from event2vec import Event2VecError, Run, build_model, draw_gallery, save_model
from event2vec.evaluation.evaluate import SEED
from event2vec.studies.gallery import _names

GALLERY = "event2vec.studies.gallery"


@pytest.fixture
def drawn(monkeypatch):
    """What was drawn and where, instead of pictures that take long."""
    pictures = {}
    for name, place in (("embedding_maps", 1), ("samples", 1), ("attention", 3)):

        def draw(*given, name=name, place=place):
            pictures[given[place].name] = given
            return {run: 0.5 + number / 10 for number, run in enumerate(given[0])} if name == "embedding_maps" else None

        monkeypatch.setattr(f"{GALLERY}.draw_{name}", draw)
    for name in ("draw_confusion", "draw_curves"):
        monkeypatch.setattr(
            f"event2vec.training.run.Run.{name}",
            lambda run, *given, name=name: pictures.update({given[-1].name: (run, *given)}),
        )
    return pictures


@pytest.fixture
def run(tmp_path):
    """A run that looks as if it had ended: its network is not trained, and learnt from a store of three classes."""
    store = make_store(tmp_path / "store")
    folder = tmp_path / "runs/mine"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(RECIPE.to_yaml())
    facts = '{{"task": "train", "data": "{0}", "source": "{0}", "init": null, "environment": {{}}}}'
    (folder / "run.json").write_text(facts.format(store.folder))
    network = randomise(build_model(RECIPE.model, class_names=["a", "b", "c"], sampling=RECIPE.sampling))
    save_model(network, folder / "model")
    return folder


def test_every_figure_of_the_first_run_is_drawn_in_its_folder(run, drawn):
    (run / "metrics.csv").write_text("epoch,seconds,data_share\n1,2,0.1\n")
    found = draw_gallery([run])
    assert (found.folder, found.problem) == (run / "figures", None)
    attention = {f"attention_{number}.png" for number in (1, 2, 3)}
    assert set(drawn) == {"embedding.png", "samples.png", "confusion.png", "curves.png"} | attention
    assert found.neighbour_similarity == {"mine": 0.5}


def test_a_run_without_metrics_has_no_curves_and_figures_go_where_they_are_asked_for(run, drawn, tmp_path):
    found = draw_gallery([run], tmp_path / "here", recordings=0)
    assert found.folder == tmp_path / "here"
    assert set(drawn) == {"embedding.png", "samples.png", "confusion.png"}
    assert all(given[-1].parent == tmp_path / "here" for given in drawn.values())


@pytest.mark.parametrize(("asked", "count"), [(1, 1), (6, 6), (50, 6)])
def test_attention_is_drawn_of_as_many_test_recordings_as_asked_for_and_there_are(run, drawn, asked, count):
    draw_gallery([run], recordings=asked)
    assert sum(name.startswith("attention_") for name in drawn) == count


def test_attention_is_of_the_events_that_an_evaluation_reads_and_says_class_and_answer(run, drawn):
    draw_gallery([run], recordings=2)
    opened = Run.open(run)
    model, store = opened.model(), opened.store().split("test")
    from event2vec.data.batches import Recordings

    for index in range(2):
        _, events, title, _ = drawn[f"attention_{index + 1}.png"]
        wanted = Recordings((store,), model.sampling, SEED)[0, index][0]
        assert torch.equal(events.t, wanted.t)
        truth = store.classes[int(store.labels[index])]
        assert title == f"Attention to a recording of {truth}, predicted {model.predict(events).name}"


def test_samples_have_all_events_and_only_test_recordings(run, drawn):
    draw_gallery([run], recordings=0)
    store, _ = drawn["samples.png"]
    assert set(store.splits) == {"test"}
    assert set(store.lengths.tolist()) == {60}


def test_the_evaluation_of_the_figures_is_not_kept_in_the_run(run, drawn):
    draw_gallery([run], recordings=0)
    assert not (run / "evaluation").exists()
    _, evaluation, _ = drawn["confusion.png"]
    assert evaluation.recordings == 6


def test_recordings_that_cannot_be_opened_cost_only_the_figures_that_need_them(run, drawn):
    (run / "run.json").write_text('{"task": "train", "data": "gone", "source": "gone", "init": null}')
    found = draw_gallery([run])
    assert isinstance(found.problem, Event2VecError)
    assert "gone" in str(found.problem)
    assert set(drawn) == {"embedding.png"}
    assert draw_gallery([run], recordings=1, data=run.parent.parent / "store").problem is None


def test_a_network_alone_is_not_changed(drawn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = make_store(tmp_path / "store")
    network = build_model(RECIPE.model, class_names=["a", "b", "c"], sampling=RECIPE.sampling)
    save_model(network, tmp_path / "networks/mine")
    before = sorted((tmp_path / "networks/mine").iterdir())
    found = draw_gallery("networks/mine", data=store.folder, recordings=0)
    assert (found.folder, found.problem) == (Path("mine-figures"), None)
    assert {given[-1].parent for given in drawn.values()} == {Path("mine-figures")}
    assert sorted((tmp_path / "networks/mine").iterdir()) == before


def test_recordings_are_opened_before_anything_is_drawn(run, drawn, monkeypatch):
    def look(*_):
        assert not drawn
        raise Event2VecError("gone")

    monkeypatch.setattr("event2vec.training.run.Run.raw_store", look)
    (run / "metrics.csv").write_text("epoch,seconds,data_share\n1,2,0.1\n")
    assert str(draw_gallery(run).problem) == "gone"
    assert set(drawn) == {"embedding.png", "curves.png"}, "which need no recordings"


def test_embeddings_of_all_runs_are_drawn_and_all_else_of_the_first(run, drawn, tmp_path):
    network = randomise(build_model(RECIPE.model, class_names=["a", "b", "c"], sampling=RECIPE.sampling), seed=1)
    save_model(network, tmp_path / "other")
    found = draw_gallery([run, tmp_path / "other"], recordings=0)
    assert list(found.neighbour_similarity) == ["mine", "other"]
    models, _ = drawn["embedding.png"]
    ours = dict(network.named_parameters())
    assert all(torch.equal(weights, ours[name]) for name, weights in models["other"].named_parameters())
    assert drawn["confusion.png"][0].folder == run


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (("a/run",), ["run"]),
        (("a/one", "a/two"), ["one", "two"]),
        (("a/run", "b/run"), ["a/run", "b/run"]),
        (("a/x/run", "b/x/run"), ["a/x/run", "b/x/run"]),
        (("a/x/run", "b/x/run", "b/y/other"), ["a/x/run", "b/x/run", "b/y/other"]),
        (("a/run", "a/run", "b/other"), ["run", "run", "other"]),
        (("a/run\x1b", "b/other"), ["run\\x1b", "other"]),
    ],
)
def test_runs_have_the_shortest_names_that_tell_them_apart(tmp_path, places, names):
    runs = [SimpleNamespace(folder=tmp_path / place) for place in places]
    assert _names(runs) == names  # type: ignore[arg-type]
    assert all(len(Path(name).parts) <= 3 for name in names)


def test_no_run_is_left_out_because_another_ends_alike(run, drawn, tmp_path):
    for folder in ("one", "two"):
        network = build_model(RECIPE.model, class_names=["a", "b", "c"], sampling=RECIPE.sampling)
        save_model(network, tmp_path / folder / "x/run")
    found = draw_gallery([tmp_path / "one/x/run", tmp_path / "two/x/run"], tmp_path / "figures")
    assert list(found.neighbour_similarity) == ["one/x/run", "two/x/run"]
