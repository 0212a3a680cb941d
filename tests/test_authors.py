"""The authors' checkpoints: their logits, in our order, and nothing else that a file may hold."""

import json
import os
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import SMALL, make_recording
from shell import run

from event2vec import (
    Event2VecError,
    EventBatch,
    EventStore,
    ModelConfig,
    Recipe,
    Sampling,
    Sensor,
    cluster_events,
    import_checkpoint,
    load_model,
    load_recipe,
    open_dataset,
)
from event2vec.data.datasets.dvs_gesture import CLASSES
from event2vec.model.checkpoint import load_any_model, save_model
from event2vec.model.classifier import build_model
from event2vec.model.masked import MaskedEventModel, build_masked_model
from event2vec.training.authors import CLASS_ORDER, import_masked_checkpoint, import_network
from event2vec.training.fit import copy_weights

TINY = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=24, heads=2, blocks=2, pooling=False)


def their_weights(config, masked=False, seed=0):
    """Random weights by the names that the authors' released code and training logs give them."""
    dim, key_dim = config.dim, config.dim // config.heads * max(config.heads // 2, 1)
    shapes = dict[str, tuple[int, ...]]()

    def norm(name, width):
        shapes.update({f"{name}.weight": (width,), f"{name}.bias": (width,)})

    widths = (dim // 4, dim // 2, dim)
    for number, width in enumerate(widths):
        shapes[f"embed_net.embed.{3 * number}.weight"] = (width, 3 if number == 0 else widths[number - 1])
        norm(f"embed_net.embed.{3 * number + 1}", width)
        shapes[f"tpe.conv.{5 * number}.weight"] = (width, 1, 3)
        norm(f"tpe.conv.{5 * number + 2}", width)
    for number in range(config.blocks):
        block = f"backbone_net.{number}.layers.0" if config.pooling else f"backbone_net.layers.{number}"
        attention = f"{block}.attention.attention"
        for name, rows in (("q", dim), ("k", key_dim), ("v", key_dim), ("f", config.heads)):
            shapes[f"{attention}.{name}_proj.weight"] = (rows, dim)
        shapes |= {f"{attention}.f_proj.bias": (config.heads,), f"{attention}.o_proj.weight": (dim, 2 * dim)}
        shapes |= {f"{attention}.q_norm.weight": (dim,), f"{attention}.k_norm.weight": (key_dim,)}
        norm(f"{block}.norm1", dim)
        norm(f"{block}.norm2", dim)
        shapes |= {
            f"{block}.ffn.linear1.weight": (config.hidden, dim),
            f"{block}.ffn.linear2.weight": (dim, config.hidden),
        }
        if config.pooling:
            norm(f"backbone_net.{number}.norm", dim)
    if not config.pooling:
        norm("backbone_net.norm", dim)
    if masked:
        shapes |= {"mask_token": (1, 1, dim), "heads.0.weight": (dim // 2, dim), "heads.3.weight": (dim // 4, dim // 2)}
        shapes["heads.6.weight"] = (3, dim // 4)
        norm("heads.1", dim // 2)
        norm("heads.4", dim // 4)
    else:
        shapes |= {"heads.weight": (config.classes, dim), "heads.bias": (config.classes,)}
    chance = torch.Generator().manual_seed(seed)
    return {
        f"classifier.{name}": 0.5 * (len(shape) == 1) + torch.randn(shape, generator=chance) * shape[-1] ** -0.5
        for name, shape in shapes.items()
    }


def save_theirs(path, weights):
    torch.save({"state_dict": weights, "epoch": 63, "global_step": 1, "pytorch-lightning_version": "2.5.3"}, path)
    return path


class Theirs:
    """The authors' network written out with stock functions, for rows without padding."""

    def __init__(self, weights, config):
        self.weights = {name.removeprefix("classifier."): weight for name, weight in weights.items()}
        self.config = config

    def norm(self, name, tokens):
        return F.layer_norm(tokens, tokens.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def linear(self, name, tokens):
        return F.linear(tokens, self.weights[f"{name}.weight"])

    def where(self, batch):
        x = 2 * batch.x / (batch.sensor.width - 1) - 1
        y = 2 * batch.y / (batch.sensor.height - 1) - 1
        tokens = torch.stack([x, y, 2 * batch.p.float() - 1], dim=2)
        for number in range(3):
            tokens = F.relu(tokens) if number else tokens
            tokens = self.norm(
                f"embed_net.embed.{3 * number + 1}", self.linear(f"embed_net.embed.{3 * number}", tokens)
            )
        return tokens

    def when(self, batch):
        t = batch.t.double() / batch.t.max(dim=1, keepdim=True).values
        signal = torch.diff(t, dim=1, prepend=t[:, :1]).float()[:, None]
        for number in range(3):
            signal = F.relu(signal) if number else signal
            kernel = self.weights[f"tpe.conv.{5 * number}.weight"]
            signal = F.conv1d(signal, kernel, padding=1, groups=signal.shape[1])
            signal = self.norm(f"tpe.conv.{5 * number + 2}", signal.mT).mT
        return signal.mT

    def one_way(self, name, tokens):
        """Causal attention in which older events fade, keys and values shared by pairs of heads."""
        heads = self.config.heads
        few, width = max(heads // 2, 1), self.config.dim // heads

        def split(letter, count):
            return self.linear(f"{name}.{letter}_proj", tokens).unflatten(-1, (count, width)).transpose(1, 2)

        def scaled(letter, count):
            rows = split(letter, count)
            weight = self.weights[f"{name}.{letter}_norm.weight"].view(count, 1, width)
            return rows / (rows.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight

        q = scaled("q", heads)
        k, v = (rows.repeat_interleave(heads // few, dim=1) for rows in (scaled("k", few), split("v", few)))
        gates = self.linear(f"{name}.f_proj", tokens) + self.weights[f"{name}.f_proj.bias"]
        faded = F.logsigmoid(gates).double().cumsum(1).transpose(1, 2)
        scores = q.double() @ k.double().mT / width**0.5 + faded[..., :, None] - faded[..., None, :]
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return (scores.masked_fill(future, -torch.inf).softmax(-1).float() @ v).transpose(1, 2).flatten(2)

    def block(self, name, tokens):
        attention = f"{name}.attention.attention"
        both = [self.one_way(attention, tokens), self.one_way(attention, tokens.flip(1)).flip(1)]
        tokens = self.norm(f"{name}.norm1", tokens + self.linear(f"{attention}.o_proj", torch.cat(both, dim=-1)))
        fed = self.linear(f"{name}.ffn.linear2", F.relu(self.linear(f"{name}.ffn.linear1", tokens)))
        return self.norm(f"{name}.norm2", tokens + fed)

    def backbone(self, tokens):
        for number in range(self.config.blocks):
            if self.config.pooling:
                tokens = self.norm(f"backbone_net.{number}.norm", self.block(f"backbone_net.{number}.layers.0", tokens))
                tokens = tokens.unflatten(1, (-1, 2)).mean(2)
            else:
                tokens = self.block(f"backbone_net.layers.{number}", tokens)
        return tokens if self.config.pooling else self.norm("backbone_net.norm", tokens)

    def logits(self, batch):
        tokens = self.backbone((self.where(batch) + self.when(batch)) * batch.rho[..., None])
        return self.linear("heads", tokens.mean(1)) + self.weights["heads.bias"]

    def answers(self, batch, hidden):
        """p, y, x of hidden events."""
        when, where = self.when(batch), self.where(batch)
        where[hidden] = self.weights["mask_token"][0, 0]
        tokens = self.backbone((where + when) * batch.rho[..., None])
        found = tokens[hidden] / batch.rho[hidden][:, None] - when[hidden]
        for number in range(2):
            found = F.relu(self.norm(f"heads.{3 * number + 1}", self.linear(f"heads.{3 * number}", found)))
        return self.linear("heads.6", found).tanh()


def golden(shared_data):
    known = {name: torch.from_numpy(column) for name, column in np.load(shared_data / "golden/dvs_gesture.npz").items()}
    ones = torch.ones_like(known["x"])
    batch = EventBatch(
        known["x"], known["y"], known["t"].long(), known["p"] > 0, ones, ones.bool(), sensor=Sensor(128, 128)
    )
    return shared_data / "golden/dvs_gesture.ckpt", batch, known["logits"]


def cluster_rows(config, rows=2):
    """Rows of clusters, most of many events."""
    recordings = [cluster_events(make_recording(900, seed=row, sensor=config.sensor), 40) for row in range(rows)]
    batch = EventBatch.pad(recordings)
    assert batch.valid.all()
    assert (batch.rho > 5).any()
    return replace(batch, t=batch.t - batch.t[:, :1])


@torch.no_grad()
def test_the_authors_checkpoint_gives_the_authors_logits(shared_data):
    path, batch, logits = golden(shared_data)
    model = import_checkpoint(path, ModelConfig())
    assert (model(batch) - logits).abs().max() < 1e-5
    weights = torch.load(path, weights_only=True)["state_dict"]
    assert (Theirs(weights, ModelConfig()).logits(batch) - logits).abs().max() < 1e-5, "and so does it written out"


@torch.no_grad()
def test_outputs_for_dvs_gesture_are_put_in_the_order_of_our_class_names(shared_data):
    """The authors' folders are called 0 to 10 and sorted as text, so their third output is class 10."""
    path, batch, logits = golden(shared_data)
    model = import_network(path, load_recipe("dvs_gesture")).model
    found = model(batch)
    for output, folder in enumerate(sorted(map(str, range(11)))):
        assert (found[:, int(folder)] - logits[:, output]).abs().max() < 1e-5
    assert (model.class_names, model.sampling) == (CLASSES, Sampling(length=4096))
    assert CLASS_ORDER["dvs_gesture"][:4] == (0, 1, 10, 2)


def test_an_order_of_classes_has_each_class_once(shared_data):
    path = shared_data / "golden/dvs_gesture.ckpt"
    with pytest.raises(Event2VecError, match="class_order must have each number from 0 to 10 once"):
        import_checkpoint(path, ModelConfig(), class_order=[0] * 11)
    with pytest.raises(Event2VecError, match="recipe dvs_lip has 100 classes, got 2 names"):
        import_network(path, load_recipe("dvs_lip"), ["a", "b"])
    with pytest.raises(Event2VecError, match=r"dvs_gesture has the classes hand clapping, .*, got 0, "):
        import_network(path, load_recipe("dvs_gesture"), sorted(map(str, range(11))))


@torch.no_grad()
@pytest.mark.parametrize("pooling", [False, True])
def test_networks_for_clusters_give_the_authors_logits(tmp_path, pooling):
    """Their released code multiplies by rho; with the paper's ln rho + 1 the answers would be others."""
    config = replace(TINY, pooling=pooling)
    weights = their_weights(config)
    model = import_checkpoint(save_theirs(tmp_path / "net.ckpt", weights), config)
    assert model.config == replace(config, intensity="linear")
    batch = cluster_rows(config)
    expected = Theirs(weights, config).logits(batch)
    torch.testing.assert_close(model(batch), expected, atol=2e-5, rtol=1e-4)
    paper = build_model(config)
    paper.load_state_dict(model.state_dict())
    assert (paper.eval()(batch) - expected).abs().max() > 1e-3


@torch.no_grad()
def test_a_pretrained_checkpoint_answers_as_the_authors_network(tmp_path):
    """Their decoder gives p, y, x; ours x, y, p."""
    weights = their_weights(TINY, masked=True)
    model = import_masked_checkpoint(save_theirs(tmp_path / "net.ckpt", weights), TINY)
    batch = cluster_rows(TINY)
    hidden = torch.rand(batch.valid.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    expected = Theirs(weights, TINY).answers(batch, hidden).flip(1)
    torch.testing.assert_close(model(batch, hidden), expected, atol=2e-5, rtol=1e-4)


def test_training_starts_from_an_imported_pretrained_network(tmp_path):
    path = save_theirs(tmp_path / "net.ckpt", their_weights(TINY, masked=True))
    save_model(import_masked_checkpoint(path, TINY), tmp_path / "net")
    assert isinstance(load_any_model(tmp_path / "net"), MaskedEventModel)
    classifier = build_model(replace(TINY, intensity="linear"))
    assert len(copy_weights(classifier, tmp_path / "net")) > 20
    found = classifier.state_dict()["backbone.stages.0.blocks.1.widen.weight"]
    assert torch.equal(found, their_weights(TINY, masked=True)["classifier.backbone_net.layers.1.ffn.linear1.weight"])
    with pytest.raises(Event2VecError, match=r"intensity linear, this recipe has log. Set model.intensity to linear"):
        copy_weights(build_masked_model(TINY), tmp_path / "net")
    with pytest.raises(Event2VecError, match=r"relative false, this recipe has true. Set model.relative to false"):
        copy_weights(build_model(replace(TINY, intensity="linear", relative=True)), tmp_path / "net")


def test_the_two_kinds_of_checkpoint_are_told_apart(tmp_path):
    masked = save_theirs(tmp_path / "masked.ckpt", their_weights(TINY, masked=True))
    classifier = save_theirs(tmp_path / "classifier.ckpt", their_weights(TINY))
    with pytest.raises(Event2VecError, match="pre-trained network without classes; use import_masked_checkpoint"):
        import_checkpoint(masked, TINY)
    with pytest.raises(Event2VecError, match="holds a classifier; use import_checkpoint"):
        import_masked_checkpoint(classifier, TINY)
    recipe = replace(Recipe(), model=TINY)
    assert isinstance(import_network(masked, recipe).model, MaskedEventModel)
    imported = import_network(classifier, recipe)
    assert imported.model.class_names == ("0", "1", "2")
    assert any("without names" in line for line in imported.assumed)


def test_a_checkpoint_of_other_sizes_names_them(shared_data, tmp_path):
    path = shared_data / "golden/dvs_gesture.ckpt"
    expected = "holds a network with blocks 4, pooling True, classes 11, expected blocks 2, pooling False, classes 24"
    with pytest.raises(Event2VecError, match=f"{expected}. Choose the recipe"):
        import_network(path, load_recipe("asl_dvs"))
    with pytest.raises(Event2VecError, match="holds a network with hidden 128, expected hidden 64"):
        import_checkpoint(path, ModelConfig(hidden=64))
    with pytest.raises(Event2VecError, match=r"need model.shared = True"):
        import_checkpoint(path, ModelConfig(shared=False))
    masked = save_theirs(tmp_path / "masked.ckpt", their_weights(TINY, masked=True))
    with pytest.raises(Event2VecError, match="holds a network with pooling False, expected pooling True"):
        import_masked_checkpoint(masked, replace(TINY, pooling=True))


def test_every_weight_has_a_place(tmp_path):
    weights = their_weights(TINY)
    norm = "classifier.backbone_net.layers.1.norm1.bias"
    for change, message in (
        ({"classifier.decoder.weight": torch.ones(3)}, "unexpected classifier.decoder.weight"),
        ({norm: torch.ones(3)}, r"has .*norm1.bias of shape \(3,\), the network needs \(16,\)"),
        ({norm: torch.full((16,), torch.nan)}, "norm1.bias has values that are not finite"),
        ({norm: torch.ones(16, dtype=torch.int64)}, "norm1.bias is not an array of numbers"),
        ({norm: None}, "missing classifier.backbone_net.layers.1.norm1.bias"),
        ({"classifier.embed_net.embed.6.weight": None}, "no network of the authors: classifier.embed_net.embed.6"),
    ):
        changed = {name: weight for name, weight in (weights | change).items() if weight is not None}
        with pytest.raises(Event2VecError, match=message):
            import_checkpoint(save_theirs(tmp_path / "net.ckpt", changed), TINY)
    with pytest.raises(Event2VecError, match="no network of the authors"):
        import_checkpoint(save_theirs(tmp_path / "net.ckpt", {"layer.weight": torch.ones(3)}), TINY)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_code_in_a_checkpoint_never_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {"classifier.heads.weight": Bomb()}}, "bomb.ckpt")
    with pytest.raises(Event2VecError, match=r"bomb.ckpt: holds more than weights, which could run code"):
        import_checkpoint("bomb.ckpt", ModelConfig())
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("content", [b"", b"no checkpoint at all", b"PK\x03\x04 cut short"])
def test_no_checkpoint_is_one_error(tmp_path, content):
    (tmp_path / "bad.ckpt").write_bytes(content)
    with pytest.raises(Event2VecError, match=r"bad.ckpt"):
        import_checkpoint(tmp_path / "bad.ckpt", ModelConfig())
    torch.save([1, 2], tmp_path / "list.ckpt")
    with pytest.raises(Event2VecError, match="holds no named weights"):
        import_checkpoint(tmp_path / "list.ckpt", ModelConfig())
    with pytest.raises(Event2VecError, match="is not a file"):
        import_checkpoint(tmp_path, ModelConfig())


def test_the_verb_makes_a_network_that_predicts(shared_data, tmp_path, capsys):
    path, net = shared_data / "golden/dvs_gesture.ckpt", tmp_path / "net"
    assert run("import", path, "--recipe", "dvs_gesture", "--out", net) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "137,619 parameters, 11 classes: hand clapping, right hand wave" in said.err
    assert "assumed: outputs in the order of folders 0, 1, 10, 2, ..." in said.err
    assert run("predict", net, shared_data / "recordings/dvs128.aedat", "--json") == 0
    assert any(name in capsys.readouterr().out for name in CLASSES)
    assert load_model(net).config == replace(cast(ModelConfig, load_recipe("dvs_gesture").model), intensity="linear")
    assert run("import", path, "--recipe", "dvs_gesture", "--out", net) == 2
    assert "exists already. Choose another --out or add --overwrite" in capsys.readouterr().err
    assert run("import", path, "--recipe", "dvs_gesture", "--out", net, "--overwrite") == 0
    capsys.readouterr()
    assert run("import", path, "--recipe", "asl_dvs", "--out", tmp_path / "other") == 2
    wrong = capsys.readouterr().err
    assert wrong.count("\n") == 1
    assert "expected blocks 2, pooling False, classes 24" in wrong
    assert not (tmp_path / "other").exists()


def test_the_verb_takes_names_from_a_store_and_says_the_rest_as_json(tmp_path, capsys):
    path = save_theirs(tmp_path / "net.ckpt", their_weights(TINY))
    recipe = replace(Recipe(name="mine"), model=TINY)
    (tmp_path / "mine.yaml").write_text(recipe.to_yaml())
    recordings = [(make_recording(20), 0)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["ant", "bee", "cat"])
    arguments = ("--recipe", tmp_path / "mine.yaml", "--classes", store.folder, "--out", tmp_path / "net", "--json")
    assert run("import", path, *arguments) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["classes"], facts["model"]["intensity"]) == (
        "classifier",
        ["ant", "bee", "cat"],
        "linear",
    )
    assert any("34x30" in line for line in facts["assumed"])
    masked = save_theirs(tmp_path / "masked.ckpt", their_weights(TINY, masked=True))
    assert run("import", masked, f"--recipe={tmp_path}/mine.yaml", f"--out={tmp_path}/masked") == 0
    told = capsys.readouterr().err
    assert "pre-trained, without classes" in told
    assert f"train RECIPE --init {tmp_path}/masked --model.intensity linear" in told


def test_the_order_of_classes_is_that_of_the_data_set_as_spikingjelly_writes_it(tmp_path):
    """Folder 10 holds our class 10, whatever its place in a sorted list."""
    from event2vec import write_events

    for split in ("train", "test"):
        for label in range(11):
            write_events(tmp_path / split / str(label) / "one.npz", make_recording(20 + label, sensor=Sensor(128, 128)))
    dataset = open_dataset("dvs_gesture", tmp_path, "train")
    assert [len(dataset[index][0]) - 20 for index in range(11)] == list(dataset.labels)
    folders = sorted(path.name for path in (tmp_path / "train").iterdir())
    assert tuple(map(int, folders)) == CLASS_ORDER["dvs_gesture"]
