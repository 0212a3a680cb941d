"""A recording for the event player of a report: its events, and the attention that each receives."""

import numpy as np
from numpy.typing import NDArray

from event2vec.clustering import to_unit_cube
from event2vec.evaluation.figures.attention_maps import attention_received, has_attention_to_draw
from event2vec.events import Events
from event2vec.model.classifier import Classifier
from event2vec.player.clip import Clip, thin

MOST = 20_000  # events per recording on the page; longer ones are sampled


def make_clip(model: Classifier, tokens: Events, raw: Events, truth: str) -> Clip:
    """`tokens` are the events that the network reads, `raw` those that the camera recorded."""
    (scores,) = model.scores([tokens])
    shown = thin(raw, MOST)
    drawn = has_attention_to_draw(model)
    received = attention_received(model, tokens) if drawn else np.zeros((0, len(tokens)))
    bright = received / np.maximum(np.percentile(received, 99, axis=1, keepdims=True), 1e-12)
    attention = (255 * bright.clip(0, 1))[:, nearest_tokens(shown, tokens)].round().astype(np.uint8)
    answer = model.class_names[int(scores.argmax())]
    right = answer == truth
    verdict = f"prediction {answer} ({float(scores.max()):.0%}), "
    verdict += "correct" if right else f"true class {truth}"
    title = truth if right else f"{truth}, classified as {answer}"
    return Clip(title, shown, len(raw), verdict, right, attention)


def nearest_tokens(events: Events, tokens: Events) -> NDArray[np.int64]:
    """The nearest token to each event in the unit cube, of the same polarity if there is one."""
    from scipy.spatial import cKDTree

    places, points = (to_unit_cube(part, events).numpy() for part in (tokens, events))
    found = np.empty(len(events), np.int64)
    for polarity in (False, True):
        mine, theirs = events.p.numpy() == polarity, np.flatnonzero(tokens.p.numpy() == polarity)
        candidates = theirs if len(theirs) else np.arange(len(tokens))
        found[mine] = candidates[cKDTree(places[candidates]).query(points[mine])[1]]
    return found
