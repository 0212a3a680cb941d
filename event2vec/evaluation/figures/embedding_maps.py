"""What the spatial embedding has learnt: colours, similarity of the polarities, a vector field (Figures 5, 8, 9)."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.evaluation.figures import pyplot, save_figure
from event2vec.model.classifier import Event2VecClassifier
from event2vec.model.embedding import LookupSpatial, ParametricSpatial
from event2vec.model.masked import MaskedEventModel

POLARITIES = ("darker (p = 0)", "brighter (p = 1)")
ARROWS = 18  # along the longer side of a field

Grid = NDArray[np.float32]  # polarity x row x column x channel
FITTED = 50_000  # vectors from which principal components are computed


def embedding_grid(model: Event2VecClassifier | MaskedEventModel) -> Grid:
    """The vector of each pixel and polarity: W_phi of a network, or the table itself (Eq. 2, 5)."""
    spatial, sensor = model.embed.spatial, model.config.sensor
    assert isinstance(spatial, ParametricSpatial | LookupSpatial)
    return spatial.table().float().cpu().numpy().reshape(2, sensor.height, sensor.width, -1)


def neighbour_similarity(grid: Grid) -> float:
    """Mean cosine similarity of neighbouring pixels: near 1 for a smooth embedding, near 0 for noise."""
    unit = grid / np.maximum(np.linalg.norm(grid, axis=-1, keepdims=True), 1e-12)
    across, down = (unit[:, :, 1:] * unit[:, :, :-1]).sum(-1), (unit[:, 1:] * unit[:, :-1]).sum(-1)
    pairs = np.concatenate([across.ravel(), down.ravel()])
    return float(pairs.mean()) if len(pairs) else 1.0


def polarity_similarity(grid: Grid) -> NDArray[np.float32]:
    """Cosine similarity of the two polarities at each pixel."""
    falling, rising = grid
    norms = np.linalg.norm(falling, axis=-1) * np.linalg.norm(rising, axis=-1)
    return (falling * rising).sum(-1) / np.maximum(norms, 1e-12)


def principal_components(grid: Grid, count: int) -> Grid:
    """The first principal components over all pixels of both polarities."""
    flat = grid.reshape(-1, grid.shape[-1])
    some = flat[:: -(-len(flat) // FITTED)].astype(np.float64)
    middle = some.mean(axis=0)
    _, vectors = np.linalg.eigh((some - middle).T @ (some - middle))
    chosen = vectors[:, ::-1][:, :count]
    shift, turned = (middle @ chosen).astype(np.float32), flat @ chosen.astype(np.float32)
    return (turned - shift).reshape(*grid.shape[:3], count)


def colours(grid: Grid) -> Grid:
    """Three principal components as red, green and blue, each stretched to the full range (Figure 5a)."""
    components = principal_components(grid, 3)
    low, high = (np.percentile(components, share, axis=(0, 1, 2)) for share in (1, 99))
    return np.clip((components - low) / np.maximum(high - low, 1e-12), 0, 1).astype(np.float32)


def draw_embedding_maps(models: dict[str, Event2VecClassifier | MaskedEventModel], path: Path) -> dict[str, float]:
    """Draw one row per network. Returns the similarity of neighbouring pixels in each."""
    plt = pyplot()
    figure, axes = plt.subplots(
        len(models), 5, figsize=(15, 3.1 * len(models) + 0.6), squeeze=False, layout="constrained"
    )
    similar = {}
    for row, (name, model) in zip(axes, models.items(), strict=True):
        grid = embedding_grid(model)
        similar[name] = neighbour_similarity(grid)
        painted = colours(grid)
        for polarity in (0, 1):
            row[polarity].imshow(painted[polarity], interpolation="nearest")
            row[polarity].set_title(f"colours, {POLARITIES[polarity]}", fontsize=10)
            _draw_field(row[3 + polarity], grid, polarity)
        picture = row[2].imshow(polarity_similarity(grid), cmap="cividis", vmin=-1, vmax=1, interpolation="nearest")
        row[2].set_title("similarity of the polarities", fontsize=10)
        figure.colorbar(picture, ax=row[2], shrink=0.8, label="cosine")
        for axis in row:
            axis.set_xlabel("x (pixels)")
        row[0].set_ylabel(f"{name}\nneighbour similarity: {similar[name]:.3f}\ny (pixels)")
    figure.suptitle("Spatial embeddings: principal components as colours, polarities compared, vector field")
    save_figure(figure, path)
    return similar


def _draw_field(axis: Any, grid: Grid, polarity: int) -> None:
    height, width = grid.shape[1:3]
    step = -(-max(height, width) // ARROWS)
    field = principal_components(grid, 2)[polarity, ::step, ::step]
    x, y = np.meshgrid(np.arange(0, width, step), np.arange(0, height, step))
    axis.quiver(x, y, field[..., 0], -field[..., 1], angles="uv", color="#3b528b", pivot="mid")
    axis.set(xlim=(-1, width), ylim=(height, -1), aspect="equal")
    axis.set_title(f"vector field, {POLARITIES[polarity]}", fontsize=10)
