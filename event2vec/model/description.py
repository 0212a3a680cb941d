"""What a network needs besides its weights: how it is built, what it reads, how its scores are judged. Without torch.

The same facts are in a saved network's config.json and in an exported file.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from event2vec.data.sampling import Sampling
from event2vec.data.windows import Windows
from event2vec.model.config import NetworkConfig
from event2vec.model.networks import section_of
from event2vec.model.predictor import Predictor
from event2vec.model.trained_on import TrainedOn
from event2vec.names import check_class_names, shown
from event2vec.settings import build_settings


@dataclass(frozen=True)
class Description:
    """A classifier without its weights."""

    config: NetworkConfig
    class_names: tuple[str, ...]
    sampling: Sampling
    temperature: float = 1.0
    trained_on: TrainedOn | None = None
    windows: Windows | None = None

    @classmethod
    def of(cls, model: Predictor) -> "Description":
        return cls(model.config, model.class_names, model.sampling, model.temperature, model.trained_on, model.windows)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Description":
        """What `facts` wrote; anything else is an Event2VecError or a ValueError."""
        config = read_config(facts)
        names = facts.get("class_names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"class_names must be a list of strings, got {shown(names)}")
        if len(names) != config.classes:
            raise ValueError(f"class_names has {len(names)} names but model.classes is {config.classes}")
        check_class_names(names)
        sampling: Sampling = build_settings(Sampling, facts.get("sampling"), "sampling")
        trained_on = TrainedOn.from_facts(facts["trained_on"]) if "trained_on" in facts else None
        windows: Windows | None = None
        if facts.get("windows") is not None:
            windows = build_settings(Windows, facts["windows"], "windows")
        temperature = _temperature(facts.get("temperature", 1.0))  # older networks have none
        return cls(config, tuple(names), sampling, temperature, trained_on, windows)

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        facts: dict[str, Any] = {
            "model": asdict(self.config),
            "class_names": list(self.class_names),
            "sampling": asdict(self.sampling),
            "temperature": self.temperature,
        }
        if self.trained_on:
            facts["trained_on"] = self.trained_on.facts()
        return facts | {"windows": asdict(self.windows) if self.windows else None}

    def hand_to(self, model: Predictor) -> None:
        """Set what a network has besides its weights."""
        model.config, model.class_names, model.sampling = self.config, self.class_names, self.sampling
        model.temperature, model.trained_on, model.windows = self.temperature, self.trained_on, self.windows


def read_config(facts: Mapping[str, Any]) -> NetworkConfig:
    """Size and parts of the network, of whatever kind."""
    config: NetworkConfig = build_settings(section_of(facts.get("model")), facts.get("model"), "model")
    return config


def _temperature(value: Any) -> float:
    """Within limits in which scores stay numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.001 <= value <= 1000:
        raise ValueError(f"temperature must be a number from 0.001 to 1,000, got {shown(value)}")
    return float(value)
