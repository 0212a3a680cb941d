"""Networks that are shared: pushed with their page, loaded by their address, and what goes wrong in one line."""

import re
import sys

import pytest
import torch
import yaml
from golden.make import FOLDER
from hub_server import TOKEN, Repository, stand_in
from shell import run, run_verbs
from test_authors import their_weights
from trainings import RECIPE, make_store

from event2vec import Event2VecError, ModelConfig, Run, evaluate_runs, import_checkpoint, load_model, load_recipe, push
from event2vec.documents import read_json
from event2vec.errors import FileError, MissingExtra, Unreachable
from event2vec.hub import Address, fetch_file
from event2vec.training.model_card import model_card

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs pip install 'event2vec[hub]'")
NETWORK = FOLDER / "network"
pytestmark = [
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),  # of huggingface_hub's own upload
    pytest.mark.xdist_group("hub"),  # one process: one network is trained
]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The stand-in, where huggingface_hub finds it, with a token and a cache of this test alone."""
    with stand_in() as server:
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        places = {
            "ENDPOINT": server.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
            "HF_HUB_CACHE": str(tmp_path / "hub"),
            "HF_TOKEN_PATH": str(tmp_path / "token"),
            "HF_HUB_DISABLE_XET": True,
        }
        for name, value in places.items():  # which it has read from the environment when it was imported
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        yield server


def settings_of(server, folder):
    """What a user sets to have another Hub than the public one."""
    return {"HF_ENDPOINT": server.url, "HF_TOKEN": TOKEN, "HF_HOME": str(folder), "HF_HUB_DISABLE_XET": "1"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return Run.start(RECIPE.with_settings({"training.epochs": 1}), make_store(folder / "store"), folder / "run")


def test_what_is_pushed_is_what_is_loaded(hub, trained):
    pushed = push(trained, "anna/gestures")
    assert pushed.address == "hf://anna/gestures"
    assert pushed.page == f"{hub.url}/anna/gestures"
    ours, theirs = trained.model(), load_model("hf://anna/gestures")
    assert theirs.class_names == ours.class_names
    for name, weight in ours.state_dict().items():
        assert torch.equal(theirs.state_dict()[name], weight)


def test_a_revision_is_one_state_of_a_network(hub, trained):
    first = push(NETWORK, "anna/gestures")
    hub.repositories["anna/gestures"].tags["v1"] = 1
    push(trained, "anna/gestures")
    for revision in ("v1", first.commit):
        assert load_model(f"hf://anna/gestures@{revision}").class_names == load_model(NETWORK).class_names
    assert load_model("hf://anna/gestures").class_names == trained.model().class_names


def test_the_page_says_how_good_the_network_is_and_names_no_file(hub, trained):
    push(trained, "anna/gestures", license_name="apache-2.0")
    files = hub.repositories["anna/gestures"].commits[-1]
    page = files["README.md"].decode()
    _, head, body = page.split("---\n", 2)
    facts = yaml.safe_load(head)
    found = trained.evaluate(repeats=1, keep=False)  # as when its training ended
    assert facts["license"] == "apache-2.0"
    assert facts["model-index"][0]["results"][0]["metrics"][0]["value"] == round(found.accuracy, 4)
    assert f"**{100 * found.accuracy:.1f} %** of {found.recordings} test recordings" in body
    assert f"95 % interval {found.interval.percent(1)} %" in body
    assert "Calibration error" in body
    assert 'load_model("hf://anna/gestures")' in body
    assert all(name in body for name in found.class_names)
    for picture in re.findall(r"!\[.*\]\((.*)\)", body):
        assert files[picture].startswith(b"\x89PNG")
    assert not [name for name, content in files.items() if str(trained.folder.parent).encode() in content]


def test_a_network_without_a_run_has_a_page_without_figures(hub):
    push(NETWORK, "anna/digits")
    page = hub.repositories["anna/digits"].commits[-1]["README.md"].decode()
    assert "## How to use it" in page
    assert "test recordings" not in page


def test_a_private_push_does_not_end_in_a_public_repository(hub):
    hub.repositories["anna/public"] = Repository()
    with pytest.raises(FileError, match="exists and is public, so `private` has no effect"):
        push(NETWORK, "anna/public", private=True)
    assert len(hub.repositories["anna/public"].commits) == 1
    push(NETWORK, "anna/hidden", private=True)
    assert hub.repositories["anna/hidden"].private


def test_the_page_says_nothing_that_was_not_measured(trained, monkeypatch):
    found = read_json(trained.result("test"))
    model = trained.model()
    for temperature, words in ((1.0, "without a fitted temperature;"), (0.5, "the temperature 0.50 that was fitted")):
        changed = found | {"calibration": found["calibration"] | {"temperature": temperature}}
        monkeypatch.setattr("event2vec.training.model_card.read_json", lambda path, changed=changed: changed)
        assert words in model_card(trained, model, "anna/gestures", None, {})
    del changed["calibration"]
    with pytest.raises(FileError, match="has no calibration: an older version wrote it"):
        model_card(trained, model, "anna/gestures", None, {})


def test_what_was_downloaded_once_is_used_where_the_hub_cannot_be_reached(hub, monkeypatch):
    push(NETWORK, "anna/digits")
    load_model("hf://anna/digits")
    hub.status = 503
    with pytest.warns(match="hf://anna/digits: the Hub answers with error 503; using what was downloaded earlier"):
        load_model("hf://anna/digits")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.warns(match="the Hub cannot be reached; using what was downloaded earlier"):
        load_model("hf://anna/digits")
    with pytest.raises(Unreachable, match="the Hub cannot be reached"):
        load_model("hf://anna/gestures")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.warns(match="the network is not used, as HF_HUB_OFFLINE is set; using"):
        load_model("hf://anna/digits")


def test_errors_are_one_line_with_a_remedy(hub, monkeypatch):
    hub.repositories["anna/empty"] = Repository()
    for address, problem in {
        "hf://anna/nothing": "does not exist, or is private",
        "hf://anna/empty@v9": "has no revision v9",
        "hf://anna/empty": "has no file config.json",
        "hf://anna": "is not an address; expected hf://OWNER/NAME",
        "hf://anna/empty/model.ckpt": "names a file, expected a repository",
        "hf://anna/empty/../model.ckpt": "is not an address",
        "hf://anna/empty//model.ckpt": "is not an address",
    }.items():
        with pytest.raises(Event2VecError, match=re.escape(problem)) as error:
            load_model(address)
        assert "\n" not in str(error.value)
    with pytest.raises(FileError, match=r"^hf://anna/nothing: does not exist, or is private"):
        evaluate_runs(["hf://anna/nothing"])
    with pytest.raises(Event2VecError, match="repo must be OWNER/NAME, got"):
        push(NETWORK, "anna/digits@v1")

    def fail(*_, **__):
        raise ValueError("two\nlines")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    with pytest.raises(FileError, match=r"^hf://anna/empty: huggingface_hub fails: ValueError: two lines$"):
        load_model("hf://anna/empty")


def test_a_push_without_a_token_says_how_to_get_one(hub, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(FileError, match=r"needs a token that may write\. Run: hf auth login"):
        push(NETWORK, "anna/digits")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(FileError, match="needs a token that is valid"):
        push(NETWORK, "anna/digits")
    hub.status = 403
    with pytest.raises(FileError, match="your token may not write here"):
        push(NETWORK, "anna/digits")
    assert not hub.repositories


def test_what_is_on_the_hub_is_not_pushed_again(capsys):
    assert run("push", "hf://anna/digits", "anna/copy") == 2
    assert "hf://anna/digits is on the Hub already. Name a run or a network in a folder" in capsys.readouterr().err


def test_without_the_extra_the_message_names_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'event2vec[hub]'")):
        load_model("hf://anna/digits")
    assert run("push", NETWORK, "anna/digits") == 2
    assert "event2vec[hub]" in capsys.readouterr().err


def test_a_published_checkpoint_is_imported_by_its_address(hub, tmp_path):
    config = load_recipe("dvs_gesture").model
    assert isinstance(config, ModelConfig)
    torch.save(their_weights(config), tmp_path / "theirs.ckpt")
    files = {"gesture/last.ckpt": (tmp_path / "theirs.ckpt").read_bytes()}
    hub.repositories["wei/checkpoints"] = Repository([files])
    ours = import_checkpoint("hf://wei/checkpoints/gesture/last.ckpt", config)
    same = import_checkpoint(tmp_path / "theirs.ckpt", config)
    assert all(torch.equal(weight, same.state_dict()[name]) for name, weight in ours.state_dict().items())
    with pytest.raises(FileError, match=r"has no file other\.ckpt"):
        fetch_file("hf://wei/checkpoints/other.ckpt")
    with pytest.raises(FileError, match="names a repository, expected one of its files"):
        fetch_file("hf://wei/checkpoints")


@pytest.mark.parametrize("text", ["hf://a/b", "hf://a/b@v1", "hf://a/b@v1/c/d.ckpt", "hf://A-1/b.c_d/e"])
def test_an_address_is_read_and_written_alike(text):
    assert str(Address.parse(text)) == text


@pytest.mark.slow
def test_the_verbs_as_a_person_runs_them(tmp_path, monkeypatch):
    """Processes in which huggingface_hub reads its settings itself."""
    recording = FOLDER / "recordings/3/aedat4.aedat4"
    with stand_in() as server:
        for name, value in settings_of(server, tmp_path).items():
            monkeypatch.setenv(name, value)
        printed = run_verbs(
            ("push", NETWORK, "anna/digits"),
            ("predict", "hf://anna/digits", recording, "--json"),
            ("predict", NETWORK, recording, "--json"),
            ("predict", "hf://anna/nothing", recording, 2),
            folder=tmp_path,
        )
    assert "predict hf://anna/digits FILE" in printed[0].err
    assert printed[1].out == printed[2].out
    assert printed[3].err.startswith("event2vec: hf://anna/nothing: does not exist, or is private.")
