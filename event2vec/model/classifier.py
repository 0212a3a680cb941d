"""The classifier: events in, a class out (Sec. 3.6)."""

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from event2vec.baselines import network_class
from event2vec.data.batches import draw_events
from event2vec.data.sampling import Sampling
from event2vec.data.windows import Windows
from event2vec.errors import Event2VecError, FileError
from event2vec.events import EventBatch, Events
from event2vec.io import read_events
from event2vec.model.backbone import build_backbone
from event2vec.model.config import ModelConfig, NetworkConfig
from event2vec.model.embedding import build_embedding
from event2vec.model.heads import ClassHead, mean_over_valid
from event2vec.model.relative import positions_of
from event2vec.model.trained_on import Extent, TrainedOn, too_few
from event2vec.names import printable
from event2vec.sensor import Sensor

UNKNOWN = "unknown"  # the answer where no class is sure enough
SEED = 0  # for drawing events in predictions
BATCH = 32  # recordings that go through the network at once


@overload
def build_model(
    config: ModelConfig, *, class_names: Sequence[str] = (), sampling: Sampling | None = None, seed: int = 0
) -> "Event2VecClassifier": ...


@overload
def build_model(
    config: NetworkConfig, *, class_names: Sequence[str] = (), sampling: Sampling | None = None, seed: int = 0
) -> "Classifier": ...


def build_model(
    config: NetworkConfig, *, class_names: Sequence[str] = (), sampling: Sampling | None = None, seed: int = 0
) -> "Classifier":
    """A classifier with initial weights drawn from `seed`: ours, or a compared system where `config` is of one.

        model = build_model(load_recipe("digits").model, class_names="0123456789")

    Without names, classes are called by their number.
    """
    network: Any = Event2VecClassifier if isinstance(config, ModelConfig) else network_class(config.network)
    with starting_weights(seed):
        return network(config, tuple(class_names), sampling or Sampling())


@contextmanager
def starting_weights(seed: int) -> Iterator[None]:
    """Seed torch's global generator, which draws initial weights, and restore it afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed CUDA
        yield


Recording = Events | str | Path  # events, or the file that holds them


@dataclass(frozen=True)
class Prediction:
    """The prediction for one recording."""

    label: int | None  # None where the answer is unknown
    name: str  # of the class, or "unknown"; label and `unknown` tell that from a class of this name
    scores: Float[Tensor, " classes"]  # probabilities; they sum to 1
    events: int  # in the whole recording
    scaled_from: Sensor | None  # the recording's own sensor, if it is not the network's
    unknown: str | None = None  # why no class is named; None where one is
    remarks: tuple[str, ...] = ()  # in what the recording lies far from those of the training, as far as that is known

    @property
    def confidence(self) -> float:
        """The score of the best class."""
        return float(self.scores.max())


class Classifier(nn.Module):
    """A network that classifies: a batch in, logits out; or a recording in, a prediction out.

        model = load_model("runs/my_recordings")
        model(EventBatch.pad([events])), model.predict("clip.aedat4").name

    `build_model` makes a new one, `Run.model` and `load_model` load a trained one.
    """

    def __init__(self, config: NetworkConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__()
        if class_names and len(class_names) != config.classes:
            raise ValueError(f"the network has {config.classes} classes, got {len(class_names)} names")
        self.config = config
        self.class_names = class_names or tuple(map(str, range(config.classes)))
        self.sampling = sampling
        self.temperature = 1.0  # of scores; training fits it, see `fit_temperature`
        self.trained_on: TrainedOn | None = None  # training notes it
        self.windows: Windows | None = None  # what the recordings that it learnt from were cut into

    @abstractmethod
    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        """Logits. A generator, which training passes, enables what is random."""

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @overload
    def predict(  # type: ignore[overload-overlap]  # a str is a sequence of str, but a file here
        self, recordings: Recording, *, vote: int = 1, batch: int = BATCH, min_confidence: float = 0.0
    ) -> Prediction: ...

    @overload
    def predict(
        self, recordings: Sequence[Recording], *, vote: int = 1, batch: int = BATCH, min_confidence: float = 0.0
    ) -> list[Prediction]: ...

    def predict(
        self,
        recordings: Recording | Sequence[Recording],
        *,
        vote: int = 1,
        batch: int = BATCH,
        min_confidence: float = 0.0,
    ) -> Prediction | list[Prediction]:
        """Classify a recording, or each of many: events or files, of any length and sensor.

        Other sensors are scaled to the network's. Scores are means over `vote` random draws of the events; the draws
        are the same every time. `batch` recordings go through the network at once. Where the best score is below
        `min_confidence`, the answer is `unknown`, with the label None. So it is for recordings with hardly any
        events, where no class scores more than another.

            model.predict("clip.aedat4").name
            [answer.name for answer in model.predict(sorted(folder.glob("*.raw")), vote=5)]
        """
        if isinstance(recordings, Events | str | Path):
            return self.predict([recordings], vote=vote, batch=batch, min_confidence=min_confidence)[0]
        if vote < 1 or batch < 1:
            raise Event2VecError(f"vote and batch must be at least 1, got {vote} and {batch}")
        if not 0 <= min_confidence <= 1:
            raise Event2VecError(f"min_confidence must be from 0 to 1, got {min_confidence}")
        network = self.for_reading(len(recordings) * vote)
        answers: list[Prediction] = []
        for start in range(0, len(recordings), batch):
            events = [self._read(recording) for recording in recordings[start : start + batch]]
            drawn = network._draws(events, vote)
            for number, (recording, row) in enumerate(zip(events, network._score(drawn), strict=True)):
                read = drawn[0].row(number) if self.sampling.repeatable else recording
                answers.append(self._prediction(recording, row, Extent.of(read), min_confidence))
        return answers

    def scores(self, recordings: Sequence[Events], vote: int = 1) -> Float[Tensor, "recordings classes"]:
        """The probability of each class, for each recording, whether or not it is like those of the training."""
        return self._score(self._draws(recordings, vote))

    def _draws(self, recordings: Sequence[Events], vote: int) -> list[EventBatch]:
        return [self._draw(recordings, draw) for draw in range(1 if self.sampling.repeatable else vote)]

    @torch.no_grad()
    def _score(self, draws: Sequence[EventBatch]) -> Float[Tensor, "recordings classes"]:
        scores = torch.stack([self(batch).float().softmax(dim=-1) for batch in draws])
        return temper(scores.mean(dim=0).cpu(), self.temperature)

    def _draw(self, recordings: Sequence[Events], draw: int = 0) -> EventBatch:
        """The events that the network reads, scaled to its sensor. Each recording is drawn from independently."""
        drawn = [draw_events(events.on_sensor(self.config.sensor), self.sampling, SEED, draw) for events in recordings]
        return EventBatch.pad(drawn).to(self.device)

    def _prediction(
        self, events: Events, scores: Float[Tensor, " classes"], extent: Extent, min_confidence: float
    ) -> Prediction:
        label, confidence = int(scores.argmax()), float(scores.max())
        scaled = events.sensor if events.sensor != self.config.sensor else None
        remarks = self.trained_on.remarks(extent) if self.trained_on else ()
        unknown = too_few(extent, self.trained_on)
        if unknown:
            scores = torch.full_like(scores, 1 / len(scores))
        elif confidence < min_confidence:
            best = f"{printable(self.class_names[label])} is the best class with {confidence:.1%}"
            unknown = f"{best}, below the {min_confidence:.1%} asked for"
        if unknown:
            return Prediction(None, UNKNOWN, scores, len(events), scaled, unknown, remarks)
        return Prediction(label, self.class_names[label], scores, len(events), scaled, None, remarks)

    def _read(self, recording: Recording) -> Events:
        events = recording if isinstance(recording, Events) else read_events(recording, usual=self.config.sensor)
        if len(events) == 0:
            problem = "holds no events, so there is nothing to classify"
            raise (
                Event2VecError(f"a recording {problem}") if recording is events else FileError(str(recording), problem)
            )
        return events

    def embed_events(self, recording: Recording) -> Float[Tensor, "events dim"]:
        """The vector of each event of a recording, from networks that read events one by one."""
        raise Event2VecError(f"{self.config.network} has no vectors of events; event2vec has")

    def features(self, recording: Recording) -> Float[Tensor, " dim"]:
        """One vector for a recording, from networks that have one."""
        raise Event2VecError(f"{self.config.network} has no vector for a recording; event2vec has")

    def for_reading(self, draws: int) -> "Classifier":
        """The same network, in the form that is fastest for this number of draws."""
        return self


class Event2VecClassifier(Classifier):
    """Embedding, backbone and head (Sec. 3.6)."""

    config: ModelConfig

    def __init__(self, config: ModelConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.embed = build_embedding(config)
        self.backbone = build_backbone(config)
        self.head = ClassHead(config.dim, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        """Logits. A generator, which training passes, enables drop path."""
        check_sensor(batch.sensor, self.config.sensor)
        return self.classify(self.embed(batch), batch.valid, generator, self.positions(batch))

    def positions(self, batch: EventBatch) -> Float[Tensor, "batch length 3"] | None:
        """Where and when events are, if attention is relative."""
        return positions_of(batch) if self.config.relative else None

    def classify(
        self,
        tokens: Float[Tensor, "batch length dim"],
        valid: Bool[Tensor, "batch length"],
        generator: torch.Generator | None = None,
        positions: Float[Tensor, "batch length 3"] | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """Logits from tokens, for callers that change tokens first."""
        return self.head(*self.backbone(tokens, valid, generator, positions))

    def for_reading(self, draws: int) -> "Event2VecClassifier":
        """The same network, with a table of all pixels if more events will be read than the table has rows."""
        sensor, random = self.config.sensor, self.sampling.method == "random"
        worth = random and draws * self.sampling.length > 2 * sensor.width * sensor.height
        return self.with_table() if worth and not self.training else self

    @torch.no_grad()
    def embed_events(self, recording: Recording) -> Float[Tensor, "events dim"]:
        """The vector of each event of a recording (Eq. 7), in time order.

            vectors = model.embed_events("clip.aedat4").numpy()

        All events are embedded, not only those that a prediction would draw.
        """
        batch = EventBatch.pad([self._read(recording).on_sensor(self.config.sensor)])
        return self.embed(batch.to(self.device))[0]

    @torch.no_grad()
    def features(self, recording: Recording) -> Float[Tensor, " dim"]:
        """One vector for a recording, the input of the class head: for similarity search, or for your own head.

            similarity = torch.cosine_similarity(model.features("a.raw"), model.features("b.raw"), dim=0)

        Events are drawn or clustered as for a prediction.
        """
        batch = self._draw([self._read(recording)])
        return mean_over_valid(*self.backbone(self.embed(batch), batch.valid, positions=self.positions(batch)))[0]

    def with_table(self) -> "Event2VecClassifier":
        """A copy for inference only, with the spatial embedding of every pixel precomputed (Eq. 5).

        It pays off if more events will be read than the sensor has pixels. Weights are shared with the original;
        train and save the original.
        """
        quick = copy.copy(self)
        quick._modules = dict(self._modules)
        quick.embed = self.embed.with_table()
        return quick


def temper(scores: Float[Tensor, "*rows classes"], temperature: float) -> Float[Tensor, "*rows classes"]:
    """Scores of logits divided by a temperature: the order of the classes stays, above 1 they are less sure.

    Of means over draws too, so that the answer never changes.
    """
    if temperature == 1:
        return scores
    return (scores.clamp(min=torch.finfo(scores.dtype).tiny).log() / temperature).softmax(dim=-1)


def check_sensor(found: Sensor, expected: Sensor) -> None:
    if found != expected:
        raise ValueError(f"the network reads events from a {expected} sensor, got {found}; see Events.on_sensor")


class TensorClassifier(nn.Module):
    """A classifier that takes plain tensors, for torch.export."""

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
