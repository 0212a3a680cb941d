"""The classifier: events in, a class out (Sec. 3.6)."""

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar, overload

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from event2vec.data.sampling import Sampling
from event2vec.errors import Event2VecError
from event2vec.events import EventBatch, Events
from event2vec.machine.cpu import fix_order_of_sums, on_one_thread
from event2vec.model.backbone import build_backbone
from event2vec.model.config import ModelConfig, NetworkConfig
from event2vec.model.embedding import build_embedding
from event2vec.model.heads import ClassHead, mean_over_valid
from event2vec.model.networks import network_class
from event2vec.model.predictor import Predictor, Recording
from event2vec.model.tokens import Tokens, become_tokens, choose_tokens, read_tokens
from event2vec.sensor import Sensor

LARGEST_TABLE = 1 << 26  # bytes of a table of pixels that is worth its memory
SHORT = 256 * 64  # tokens times their width; up to this, one thread answers sooner than two


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


class Classifier(Predictor, nn.Module):
    """A network that classifies: a batch in, logits out; or a recording in, a prediction out.

        model = load_model("runs/my_recordings")
        model(EventBatch.pad([events])), model.predict("clip.aedat4").name

    `build_model` makes a new one, `Run.model` and `load_model` load a trained one.
    """

    reusable: tuple[str, ...] = ()
    """The parts, by the beginnings of their names, that another training may start from."""

    def __init__(self, config: NetworkConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        fix_order_of_sums()
        super().__init__()
        if class_names and len(class_names) != config.classes:
            raise ValueError(f"the network has {config.classes} classes, got {len(class_names)} names")
        self.config = config
        self.class_names = class_names or tuple(map(str, range(config.classes)))
        self.sampling = sampling
        self.temperature = 1.0
        self.trained_on = None
        self.windows = None

    @abstractmethod
    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        """Logits. A generator, which training passes, enables what is random."""

    def learn(
        self, batch: EventBatch, generator: torch.Generator | None
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, ""] | float]:
        """Logits, and a penalty that training adds to the loss; most networks have none."""
        return self(batch, generator), 0.0

    def at_resolution(self, pixels: int) -> "Classifier | None":
        """The same network with frames of this many pixels a side (Figure 4); None: events are moved instead."""
        return None

    @property
    def tabulated(self) -> int:
        """Numbers that a table of all pixels has for each; 0 where there is none."""
        return 0

    def for_reading(self, draws: int) -> "Classifier":
        """The same network, with a table of all pixels if more events will be read than the table has rows."""
        rows = 2 * self.config.sensor.width * self.config.sensor.height
        worth = self.sampling.method == "random" and draws * self.tokens > rows
        fits = 0 < 4 * rows * self.tabulated <= LARGEST_TABLE
        return self.with_table() if worth and fits and not self.training else self

    def tokens_of(self, events: Events) -> Events:
        """The events that become tokens when the network reads these, in time order; others are counted around them.

            len(model.tokens_of(events)) <= model.tokens

        All of them, unless `model.tokens` says fewer.
        """
        return events

    def with_table(self) -> "Classifier":
        """A copy for inference with what depends on the pixel precomputed; a network without such a part as it is."""
        return self

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @torch.no_grad()
    def mean_scores(self, draws: Sequence[EventBatch]) -> Float[Tensor, "recordings classes"]:
        scores = torch.stack([self._classify(batch.to(self.device)).float().softmax(dim=-1) for batch in draws])
        return temper(scores.mean(dim=0).cpu(), self.temperature)

    def _classify(self, batch: EventBatch) -> Float[Tensor, "batch classes"]:
        """`forward`, on as many threads as suit the batch."""
        return self(batch)

    def embed_events(self, recording: Recording) -> Float[Tensor, "events dim"]:
        """The vector of each event of a recording, from networks that read events one by one."""
        raise Event2VecError(f"{self.config.network} has no vectors of events; event2vec has")

    def features(self, recording: Recording) -> Float[Tensor, " dim"]:
        """One vector for a recording, from networks that have one."""
        raise Event2VecError(f"{self.config.network} has no vector for a recording; event2vec has")


class Event2VecClassifier(Classifier):
    """Embedding, backbone and head (Sec. 3.6)."""

    config: ModelConfig
    reusable = ("embed.", "backbone.")

    def __init__(self, config: ModelConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.embed = build_embedding(config)
        self.backbone = build_backbone(config)
        self.head = ClassHead(config.dim, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        """Logits. A generator, which training passes, enables drop path."""
        check_sensor(batch.sensor, self.config.sensor)
        tokens, valid, positions = self.read(batch, generator)
        return self.classify(tokens, valid, generator, positions)

    def _classify(self, batch: EventBatch) -> Float[Tensor, "batch classes"]:
        rows, length = batch.valid.shape
        with on_one_thread() if rows * min(length, self.tokens) * self.config.dim <= SHORT else nullcontext():
            return self(batch)

    def read(self, batch: EventBatch, generator: torch.Generator | None = None) -> Tokens:
        """What the backbone takes. A generator draws tokens, if not all events are some."""
        return read_tokens(self, batch, generator)

    def tokens_of(self, events: Events) -> Events:
        batch = EventBatch.pad([events.torch()])
        chosen = choose_tokens(batch.valid, self.config.tokens)
        return events if chosen is None else become_tokens(batch, chosen).row(0)

    def classify(
        self,
        tokens: Float[Tensor, "batch length dim"],
        valid: Bool[Tensor, "batch length"],
        generator: torch.Generator | None = None,
        positions: Float[Tensor, "batch length 3"] | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """Logits from tokens, for callers that change tokens first."""
        return self.head(*self.backbone(tokens, valid, generator, positions))

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
        tokens, valid, positions = self.read(self.draw([self._read(recording)]).to(self.device))
        return mean_over_valid(*self.backbone(tokens, valid, positions=positions))[0]

    @property
    def tabulated(self) -> int:
        return self.config.dim

    def with_table(self) -> "Event2VecClassifier":
        """A copy for inference only, with the spatial embedding of every pixel precomputed (Eq. 5).

        It pays off if more events will be read than the sensor has pixels. Weights are shared with the original;
        train and save the original.
        """
        return with_part(self, "embed", self.embed.with_table())


Network = TypeVar("Network", bound=Classifier)


def with_part(network: Network, name: str, part: nn.Module) -> Network:
    """A copy with another part, which shares all other weights with the original."""
    other = copy.copy(network)
    other._modules = network._modules | {name: part}
    return other


def temper(scores: Float[Tensor, "*rows classes"], temperature: float) -> Float[Tensor, "*rows classes"]:
    """Scores of logits divided by a temperature: the order of the classes stays, above 1 they are less sure.

    Of means over draws too, so that the answer never changes.
    """
    if temperature == 1:
        return scores
    return (scores.clamp(min=torch.finfo(scores.dtype).tiny).log() / temperature).softmax(dim=-1)


def check_sensor(found: Sensor, expected: Sensor) -> None:
    # Number by number: torch.compile cannot compare two sensors once it has seen another size.
    if found.width != expected.width or found.height != expected.height:
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
