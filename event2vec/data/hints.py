"""What a person should know about a store before training on it: recordings that should be cut into windows."""

from collections import Counter

import numpy as np

from event2vec.data.store import EventStore
from event2vec.names import shorten, shown

FAR = 10  # times the median duration: a recording this long is not one clip like the rest
SHOWN = 3  # classes that are named


def window_hints(store: EventStore) -> list[str]:
    """Hints to set a window; none for a store of windows."""
    if store.windows is not None or len(store) == 0:
        return []
    return [*_far_longer(store), *_single(store)]


def _far_longer(store: EventStore) -> list[str]:
    durations = store.durations / 1e6
    usual, longest = float(np.median(durations)), int(durations.argmax())
    if usual <= 0 or durations[longest] <= FAR * usual:
        return []
    others = int((durations > FAR * usual).sum()) - 1
    more = f" (and {others} more like it)" if others else ""
    return [
        f"{shorten(store.sources[longest])} lasts {durations[longest]:.3g} s{more}, most recordings {usual:.3g} s; "
        f"a `window` of {usual:.2g} s cuts long ones into many"
    ]


def _single(store: EventStore) -> list[str]:
    counts = Counter(store.labels.tolist())
    alone = [store.classes[label] for label, count in counts.items() if count == 1]
    if not alone:
        return []
    named = ", ".join(map(shown, alone[:SHOWN])) + (f" and {len(alone) - SHOWN} more" if len(alone) > SHOWN else "")
    what, they, them = ("classes have", "they are", "them") if len(alone) > 1 else ("class has", "it is", "it")
    return [
        f"{len(alone)} {what} only one recording: {named}. If {they} long, cut {them} into windows with "
        "`window`; testing a class needs a second recording"
    ]
