"""After training: the temperature of each saved network, fitted on the validation part."""

from collections.abc import Iterable
from pathlib import Path

from event2vec.data.store import EventStore
from event2vec.evaluation.calibration import fit_temperature
from event2vec.evaluation.evaluate import BATCH, classify_store
from event2vec.machine.devices import Compute
from event2vec.model.checkpoint import load_model, save_model
from event2vec.progress import Progress


def calibrate(networks: Iterable[Path], store: EventStore, compute: Compute, progress: Progress) -> None:
    """Fit the temperature of these networks and save it with them; without a validation part they stay as they are."""
    if "validation" not in store.splits:
        return
    validation = store.split("validation")
    for folder in networks:
        model = load_model(folder).to(compute.device)
        with progress.stage("fitting the temperature", len(validation)), compute.autocast():
            scores = classify_store(model, validation, 0, BATCH, progress)
        model.temperature = fit_temperature(scores, validation.labels)
        save_model(model.cpu(), folder)
