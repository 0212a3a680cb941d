"""The classifier: events in, a class out (Sec. 3.6)."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from event2vec.data.sampling import Sampling
from event2vec.data.seeding import seeded
from event2vec.errors import Event2VecError, FileError
from event2vec.events import EventBatch, Events
from event2vec.io import read_events
from event2vec.model.backbone import build_backbone
from event2vec.model.config import ModelConfig
from event2vec.model.embedding import build_embedding
from event2vec.model.heads import ClassHead, mean_over_valid
from event2vec.sensor import Sensor

SEED = 0  # of the draws of predictions


def build_model(
    config: ModelConfig, *, class_names: Sequence[str] = (), sampling: Sampling | None = None, seed: int = 0
) -> "Classifier":
    """A classifier with starting weights that `seed` decides. Classes without names are called by their number."""
    with starting_weights(seed):
        return Classifier(config, tuple(class_names), sampling or Sampling())


@contextmanager
def starting_weights(seed: int) -> Iterator[None]:
    """torch draws starting weights from a generator of its own: set it, and give it back as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would touch those of CUDA too
        yield


Recording = Events | str | Path  # events, or the file that holds them


@dataclass(frozen=True)
class Prediction:
    """An answer for one recording."""

    label: int
    name: str
    scores: Float[Tensor, " classes"]  # probabilities; they sum to 1
    events: int  # in the whole recording
    scaled_from: Sensor | None  # the recording's own sensor, where it is not the network's


class Classifier(nn.Module):
    """Tokens, backbone, class: a batch in, logits out; or one recording in, an answer out."""

    def __init__(self, config: ModelConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__()
        if class_names and len(class_names) != config.classes:
            raise ValueError(f"the network tells {config.classes} classes apart, got {len(class_names)} names")
        self.config = config
        self.class_names = class_names or tuple(map(str, range(config.classes)))
        self.sampling = sampling
        self.embed = build_embedding(config)
        self.backbone = build_backbone(config)
        self.head = ClassHead(config.dim, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        """Logits. A generator, as training passes it, turns drop path on."""
        check_sensor(batch.sensor, self.config.sensor)
        return self.classify(self.embed(batch), batch.valid, generator)

    def classify(
        self,
        tokens: Float[Tensor, "batch length dim"],
        valid: Bool[Tensor, "batch length"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """Logits of tokens, for those who change tokens on the way."""
        return self.head(*self.backbone(tokens, valid, generator))

    @overload
    def predict(  # type: ignore[overload-overlap]  # a text is a sequence of texts, and a file here
        self, recordings: Recording, *, vote: int = 1, batch: int = 32
    ) -> Prediction: ...

    @overload
    def predict(self, recordings: Sequence[Recording], *, vote: int = 1, batch: int = 32) -> list[Prediction]: ...

    def predict(
        self, recordings: Recording | Sequence[Recording], *, vote: int = 1, batch: int = 32
    ) -> Prediction | list[Prediction]:
        """The class of a recording, or of each of many: events or files, of any length and sensor.

        Other sensors are scaled to the network's. With `vote`, scores are means over so many draws of the events; the
        draws are the same every time. `batch` recordings go through the network at once.

            model.predict("clip.aedat4").name
            [answer.name for answer in model.predict(sorted(folder.glob("*.raw")), vote=5)]
        """
        if isinstance(recordings, Events | str | Path):
            return self.predict([recordings], vote=vote, batch=batch)[0]
        if vote < 1 or batch < 1:
            raise Event2VecError(f"vote and batch must be at least 1, got {vote} and {batch}")
        network = self.for_reading(len(recordings) * vote)
        answers: list[Prediction] = []
        for start in range(0, len(recordings), batch):
            answers += network._answer([_read(recording) for recording in recordings[start : start + batch]], vote)
        return answers

    @torch.no_grad()
    def _answer(self, recordings: Sequence[Events], vote: int) -> list[Prediction]:
        vote = 1 if self.sampling.repeatable else vote
        scores = torch.stack([self(self._draw(recordings, draw)).float().softmax(dim=-1) for draw in range(vote)])
        return [self._prediction(events, row) for events, row in zip(recordings, scores.mean(dim=0).cpu(), strict=True)]

    def _draw(self, recordings: Sequence[Events], draw: int = 0) -> EventBatch:
        """What the network reads of these recordings, scaled to its sensor. Each is drawn from as if alone."""
        drawn = [
            self.sampling.shorten(events.on_sensor(self.config.sensor), seeded(SEED, draw, 0, events.t.device))
            for events in recordings
        ]
        return EventBatch.pad(drawn).to(self.head.linear.weight.device)

    def _prediction(self, events: Events, scores: Float[Tensor, " classes"]) -> Prediction:
        label = int(scores.argmax())
        scaled = events.sensor if events.sensor != self.config.sensor else None
        return Prediction(label, self.class_names[label], scores, len(events), scaled)

    def for_reading(self, draws: int) -> "Classifier":
        """The same network, with a table of all pixels where more events will be read than that has rows."""
        sensor, random = self.config.sensor, self.sampling.method == "random"
        worth = random and draws * self.sampling.length > 2 * sensor.width * sensor.height
        return self.with_table() if worth and not self.training else self

    @torch.no_grad()
    def embed_events(self, recording: Recording) -> Float[Tensor, "events dim"]:
        """The vector of each event of a recording (Eq. 7): all of them, in the order of time."""
        batch = EventBatch.pad([_read(recording).on_sensor(self.config.sensor)])
        return self.embed(batch.to(self.head.linear.weight.device))[0]

    @torch.no_grad()
    def features(self, recording: Recording) -> Float[Tensor, " dim"]:
        """One vector for a recording, which the class head reads: for similarity search, or for a head of your own."""
        batch = self._draw([_read(recording)])
        return mean_over_valid(*self.backbone(self.embed(batch), batch.valid))[0]

    def with_table(self) -> "Classifier":
        """A copy for answers alone, with the spatial embedding of every pixel computed once (Eq. 5).

        It pays when more events will be read than the sensor has pixels. Weights are shared with this one; train and
        save that.
        """
        quick = copy.copy(self)
        quick._modules = dict(self._modules)
        quick.embed = self.embed.with_table()
        return quick


def _read(recording: Recording) -> Events:
    events = recording if isinstance(recording, Events) else read_events(recording)
    if len(events) == 0:
        problem = "holds no events, so there is nothing to classify"
        raise Event2VecError(f"a recording {problem}") if recording is events else FileError(str(recording), problem)
    return events


def check_sensor(found: Sensor, expected: Sensor) -> None:
    if found != expected:
        raise ValueError(f"the network reads a sensor of {expected}, got a batch of {found}; see Events.on_sensor")


class TensorClassifier(nn.Module):
    """A classifier that takes plain tensors, for torch.export and what comes after it."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(
        self,
        x: Float[Tensor, "batch length"],
        y: Float[Tensor, "batch length"],
        t: Int64[Tensor, "batch length"],
        p: Bool[Tensor, "batch length"],
        rho: Float[Tensor, "batch length"],
        valid: Bool[Tensor, "batch length"],
    ) -> Float[Tensor, "batch classes"]:
        return self.classifier(EventBatch(x, y, t, p, rho, valid, self.classifier.config.sensor))


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
