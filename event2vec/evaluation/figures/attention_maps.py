"""Which events a network attends to: the attention that each event receives (Figure 6)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from event2vec.errors import Event2VecError
from event2vec.evaluation.figures import pyplot, save_figure
from event2vec.events import EventBatch, Events
from event2vec.model.attention import Bidirectional, ForgettingDirection, forgetting_weights
from event2vec.model.classifier import Classifier
from event2vec.model.config import ATTENTION_KINDS, ModelConfig
from event2vec.model.predictor import Predictor
from event2vec.model.rows import Rows, reverse

DARK = "#333344"  # behind the events, so that the brightest stand out
ACROSS = 4  # blocks side by side


def has_attention_to_draw(model: Predictor) -> bool:
    """Forgetting attention has weights; gated linear attention, other networks and exported ones have none."""
    return (
        isinstance(model, Classifier)
        and isinstance(model.config, ModelConfig)
        and ATTENTION_KINDS[model.config.attention].weights
    )


@torch.no_grad()
def attention_received(model: Classifier, events: Events) -> NDArray[np.float64]:
    """The attention that each token receives in each block, (blocks, tokens); each row sums to the number of tokens.

    `events` are those that the network reads, and tokens are all of them or those of `tokens_of`. Averaged over
    queries, heads and both directions. After pooling, a token stands for several events, which share its attention.
    """
    seen: list[tuple[Bidirectional, Tensor, Rows]] = []

    def note(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(module, Bidirectional)
        seen.append((module, *inputs))

    if not has_attention_to_draw(model):
        raise Event2VecError("this network has no weights to draw; that needs model.attention = forgetting")
    modules = [module for module in model.modules() if isinstance(module, Bidirectional)]
    hooks = [module.register_forward_pre_hook(note) for module in modules]
    try:
        model(EventBatch.pad([events]).to(next(model.parameters()).device))
    finally:
        for hook in hooks:
            hook.remove()
    count = len(model.tokens_of(events))
    return np.stack([_received(module, tokens, rows, count) for module, tokens, rows in seen])


def _received(module: Bidirectional, tokens: Tensor, rows: Rows, events: int) -> NDArray[np.float64]:
    before, after = directed_weights(module, tokens, rows)
    both = (before.mean(dim=(1, 2)) + reverse(after.mean(dim=(1, 2)), rows.turn))[0] / 2
    pooled = 1  # events per token: each stage of pooling halves a row, and keeps an odd last token
    while -(-events // pooled) > len(both):
        pooled *= 2
    shared = both.repeat_interleave(pooled)[:events]
    return (shared / shared.sum().clamp(min=1e-12) * events).double().cpu().numpy()


def directed_weights(
    module: Bidirectional, tokens: Float[Tensor, "1 length dim"], rows: Rows
) -> tuple[Float[Tensor, "1 heads length length"], Float[Tensor, "1 heads length length"]]:
    """The attention weights of both directions, as in the forward pass; the second over the reversed row."""
    ahead, back = module.directions[0], module.directions[-1]
    assert isinstance(ahead, ForgettingDirection)
    assert isinstance(back, ForgettingDirection)
    q, k, _, gate = (part.transpose(1, 2) for part in ahead.project(tokens, rows))
    before = forgetting_weights(q, k, gate)
    q, k, _, gate = (reverse(part, rows.turn).transpose(1, 2) for part in back.project(tokens, rows))
    return before, forgetting_weights(q, k, gate)


def draw_attention(model: Classifier, events: Events, title: str, path: Path) -> None:
    """Draw one recording over the sensor and over time, a column per block; brighter events receive more attention."""
    from matplotlib.ticker import MaxNLocator

    plt = pyplot()
    received, events = attention_received(model, events), model.tokens_of(events)
    columns, bands = min(len(received), ACROSS), -(-len(received) // ACROSS)
    figure = plt.figure(figsize=(3.6 * columns + 0.8, 6.6 * bands), layout="constrained")
    x, y, seconds = events.x.numpy(), events.y.numpy(), events.t.numpy() / 1e6
    low, high = 0.0, float(np.percentile(received, 99))
    for number, weights in enumerate(received):
        order = np.argsort(weights)  # the most attended on top
        place = 2 * columns * (number // columns) + number % columns + 1
        style = {"c": weights[order], "cmap": "inferno", "vmin": low, "vmax": high, "s": 9}
        flat = figure.add_subplot(2 * bands, columns, place)
        points = flat.scatter(x[order], y[order], **style)
        flat.set(xlim=(-1, events.sensor.width), ylim=(events.sensor.height, -1), aspect="equal", facecolor=DARK)
        flat.set(xlabel="x (pixels)", ylabel="y (pixels)" if place % columns == 1 % columns else "")
        flat.set_title(f"block {number + 1}")
        deep: Any = figure.add_subplot(2 * bands, columns, place + columns, projection="3d")
        deep.scatter(seconds[order], x[order], y[order], depthshade=False, **style)
        deep.set(xlabel="t (s)", ylabel="x (pixels)", zlabel="y (pixels)")
        deep.invert_zaxis()
        for axis in (deep.xaxis, deep.yaxis, deep.zaxis):
            axis.set_major_locator(MaxNLocator(4))
            axis.set_pane_color(DARK)
    figure.colorbar(points, ax=figure.axes, label="attention received (1 = equal share)", shrink=0.6)
    figure.suptitle(title)
    save_figure(figure, path)
