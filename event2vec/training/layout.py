"""The files in a run's folder, known only here: what run.json says, and the lock that lets one process train in it.

Without torch.
"""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from event2vec.documents import read_json
from event2vec.errors import FileError
from event2vec.machine.atomic import clear_leftovers, is_leftover
from event2vec.machine.locks import LOCK, own
from event2vec.machine.ranks import is_first_rank
from event2vec.model.network_folder import A_NETWORK, BEST, NETWORK, RECIPE, holds_network

Task = Literal["train", "pretrain"]
WHAT_A_RUN_IS = "A run is a folder that 'event2vec train' wrote"


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run started from, besides its recipe."""

    task: Task
    data: str  # the store that it reads
    source: str | None = None  # what the store was made from, if it holds clusters
    init: str | None = None  # the network whose weights it started from
    environment: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        facts = asdict(self)
        return {**facts, **facts.pop("environment")}

    @classmethod
    def from_json(cls, path: Path) -> "RunFacts":
        facts = read_json(path)
        own = {name: facts.pop(name, None) for name in ("task", "data", "source", "init")}
        texts = all(value is None or isinstance(value, str) for value in own.values())
        if own["task"] not in get_args(Task) or not own["data"] or not texts:
            raise FileError(path, "is damaged, expected JSON with task, data and init")
        return cls(**own, environment=facts)


@dataclass(frozen=True)
class Layout:
    """The files of a run, whether or not they exist yet."""

    folder: Path

    def __fspath__(self) -> str:
        """A run stands for its folder wherever a path is expected."""
        return str(self.folder)

    @property
    def recipe_file(self) -> Path:
        return self.folder / RECIPE

    @property
    def facts_file(self) -> Path:
        """Task, data and versions."""
        return self.folder / "run.json"

    @property
    def metrics_file(self) -> Path:
        """A row for each epoch."""
        return self.folder / "metrics.csv"

    @property
    def network(self) -> Path:
        """The network after the last epoch, as `save_model` writes it."""
        return self.folder / NETWORK

    @property
    def best_network(self) -> Path:
        """The network of the epoch with the best result on validation; without a validation part there is none."""
        return self.folder / BEST

    @property
    def state(self) -> Path:
        """Everything that a stopped training needs to resume."""
        return self.folder / "checkpoints" / "last.ckpt"

    @property
    def tensorboard(self) -> Path:
        return self.folder / "tensorboard"

    @property
    def curves(self) -> Path:
        return self.folder / "curves.png"

    @property
    def figures(self) -> Path:
        return self.folder / "figures"

    @property
    def page(self) -> Path:
        return self.folder / "report.html"

    @property
    def row_result(self) -> Path:
        """What an experiment measured with this run; it is the last file that an experiment writes."""
        return self.folder / "result.json"

    def evaluation(self, data: str | Path | None) -> Path:
        """Results on the run's own recordings, and on other data in a subfolder with its name."""
        return self.folder / "evaluation" / Path(data).resolve().name if data else self.folder / "evaluation"

    def result(self, split: str, data: str | Path | None = None) -> Path:
        """Figures of an evaluation. Those on the test part are written when a training ends."""
        return self.evaluation(data) / f"{split}.json"

    def confusion(self, split: str, data: str | Path | None) -> Path:
        return self.evaluation(data) / f"confusion_{split}.png"

    def sweep_file(self, kind: str, split: str, data: str | Path | None) -> Path:
        return self.evaluation(data) / (f"{kind}.csv" if split == "test" else f"{kind}_{split}.csv")

    def reliability(self, split: str, data: str | Path | None) -> Path:
        return self.evaluation(data) / f"reliability_{split}.png"

    @property
    def is_started(self) -> bool:
        """Whether the run has started: the recipe is written last."""
        return self.recipe_file.is_file()

    @property
    def can_start(self) -> bool:
        """Whether a run can start here: there is nothing, or only what a killed start left behind."""
        if not self.folder.exists():
            return True
        known = (self.facts_file.name, LOCK)
        return self.folder.is_dir() and all(path.name in known or is_leftover(path) for path in self.folder.iterdir())

    def check_run(self) -> None:
        """Refuse a folder with neither a run nor a network."""
        if not self.folder.exists():
            raise FileError(self.folder, f"does not exist, expected {A_NETWORK}")
        if not self.facts_file.is_file() and not holds_network(self.folder):
            raise FileError(
                self.folder, f"is not a run: it has neither {self.facts_file.name} nor a network. {WHAT_A_RUN_IS}"
            )

    def check_facts(self) -> None:
        """Refuse a folder that does not say what was trained in it, such as that of a network alone."""
        if not self.facts_file.is_file():
            raise FileError(self.folder, f"is not a run: it has no {self.facts_file.name}. {WHAT_A_RUN_IS}")

    def check_free(self, task: Task) -> None:
        """Refuse a folder that already holds something, before any work."""
        if is_first_rank() and not self.can_start:
            resume = f"Resume it with: {self.command(task)}, or choose" if self.facts_file.is_file() else "Choose"
            raise FileError(self.folder, f"exists already. {resume} another `out`")

    def command(self, task: Task) -> str:
        """The shell command that resumes this run."""
        return f"event2vec {task} --resume {shlex.quote(str(self.folder))}"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only process that trains here, and clear what a killed one left half-written.

        In distributed training, the first process holds the folder for all.
        """
        if not is_first_rank():
            yield
            return
        with own(self.folder):
            for folder in (self.folder, self.state.parent):
                clear_leftovers(folder)
            yield
