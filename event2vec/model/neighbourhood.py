"""What is around an event: the events near it, counted by offset in x, y and t and by polarity (ours, not the paper's).

    near(i) = LayerNorm(W ln(1 + c_i)),    c_i: counts of the events around event i

The vector of Eq. 7 says where an event is. Whether it is on an edge, and where that edge goes, only attention can tell,
and it takes many recordings to learn how. Counts around the event say so from the start, and are the same wherever and
whenever it happens. They are taken from all events that the network reads, of which some may be tokens (`tokens.py`); a
cluster counts as the rho events that it stands for.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from event2vec.events import EventBatch
from event2vec.model import compiled_rows
from event2vec.model.frames import count_events, shrink, stretches_of_time
from event2vec.model.norm import LayerNorm

SIDE = 32  # cells that the sensor is divided into along x, and along y; no finer than its pixels
BINS = 8  # stretches of time that a recording is divided into
REACH = 1  # stretches before and after an event's own that it sees


class Neighbourhood(nn.Module):
    """A vector for the counts in `width` x `width` cells around each event, and a stretch of time before and after."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Linear(counts_around(width), dim, bias=False)
        self.norm = LayerNorm(dim)

    def forward(
        self,
        batch: EventBatch,
        hidden: Bool[Tensor, "batch length"] | None = None,
        places: Int64[Tensor, "batch tokens"] | None = None,
    ) -> Float[Tensor, "batch tokens dim"]:
        """Vectors of all events of a batch, or of those at these places; all of them are counted."""
        return self.norm(self.weight(see_around(batch, hidden, self.width, places).to(self.weight.weight.dtype)))


def counts_around(width: int) -> int:
    """How many counts an event sees: by stretch of time, polarity and cell."""
    return (2 * REACH + 1) * 2 * width * width


@torch.no_grad()
def see_around(
    batch: EventBatch,
    hidden: Bool[Tensor, "batch length"] | None,
    width: int,
    places: Int64[Tensor, "batch tokens"] | None = None,
) -> Float[Tensor, "batch tokens counts"]:
    """ln(1 + c). Compiled code counts a recording in a tenth of the time; of padding, it sees nothing."""
    if compiled_rows.serves(batch.x, 8, batch.y, batch.rho):
        asked = batch.x.shape if places is None else places.shape
        around = batch.x.new_empty(*asked, counts_around(width))
        compiled_rows.look_around(batch, hidden, places, [SIDE, BINS, REACH, width], around)
        return around
    counts = count_cells(batch, hidden).log1p()  # of cells, which are fewer than what events see of them
    return look_around(counts, batch, width, places)


@torch.no_grad()
def count_cells(
    batch: EventBatch, hidden: Bool[Tensor, "batch length"] | None = None
) -> Float[Tensor, "batch stretches 2 rows columns"]:
    """Events by stretch of time, polarity and cell. Hidden ones do not count."""
    weight = None if hidden is None else (~hidden).to(batch.x.dtype)
    return count_events(shrink(batch, SIDE), stretches_of_time(batch, BINS), BINS, "bilinear", weight=weight)


@torch.no_grad()
def look_around(
    counts: Float[Tensor, "batch stretches 2 rows columns"],
    batch: EventBatch,
    width: int,
    places: Int64[Tensor, "batch tokens"] | None = None,
) -> Float[Tensor, "batch tokens counts"]:
    """c: the counts around the cell of each event; beyond the sensor and the recording there is nothing."""
    edge = width // 2
    counts = F.pad(counts, (edge, edge, edge, edge, 0, 0, REACH, REACH))
    cells = _cells(batch, counts.shape)
    cells = cells if places is None else cells.gather(1, places)
    return counts.flatten()[cells[..., None] + _offsets(counts, width)]


def _cells(batch: EventBatch, shape: torch.Size) -> Int64[Tensor, "batch length"]:
    """Where the neighbourhood of each event begins in the padded counts of a batch."""
    _, stretches, polarities, height, width = shape
    cell = shrink(batch, SIDE)
    row = torch.arange(batch.valid.shape[0], device=batch.x.device)[:, None]
    plane = (row * stretches + stretches_of_time(batch, BINS)) * polarities
    return (plane * height + cell.y.round().long()) * width + cell.x.round().long()


def _offsets(counts: Float[Tensor, "batch stretches 2 height width"], width: int) -> Int64[Tensor, " counts"]:
    """From there to each of the counts in a neighbourhood."""
    _, _, polarities, height, columns = counts.shape
    sizes = (2 * REACH + 1, polarities, width, width)
    ranges = [torch.arange(size, device=counts.device) for size in sizes]
    stretch, polarity, row, column = torch.meshgrid(*ranges, indexing="ij")
    return (((stretch * polarities + polarity) * height + row) * columns + column).flatten()
