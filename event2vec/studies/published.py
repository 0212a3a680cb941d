"""What the paper reports of each network (Tables 1 and 2), to stand beside what is measured here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A row of Table 1, with the columns of Table 2 where the paper measured them, as the paper writes them."""

    method: str  # and representation
    dataset: str = "-"
    accuracy: str = "-"  # %
    size: str = "-"  # the column "Params (MB)", whose units are mixed: docs/results.md
    training: str = "-"  # recordings a second
    inference: str = "-"
    latency: str = "-"  # ms: preparing, forward, total
    memory: str = "-"  # MB of a GPU


PUBLISHED = {
    "event2vec": Published(
        "Transformer + Event2Vec",
        "DVS Gesture",
        "97.57 ± 1.31",
        "0.52",
        "1016.19 ± 61.18",
        "2900.08 ± 277.30",
        "9.92 + 13.51 = 23.43",
        "602",
    ),
    "frame_cnn": Published("CNN + Frame"),
    "voxel_grid": Published("ResNet + Voxel Grid (Figure 3)"),
    "eventnet": Published("EventNet + Events"),
    "sparse_gru": Published("Sparse GRU + Frame", "DVS Gesture", "97.80", "4.80"),
    "ma_snn": Published("SNN + Frame", "DVS Gesture", "98.23", "6.50"),
    "farse_cnn": Published("FARSE-CNN + Window Slicing", "DVS Gesture", "96.6", "10.79"),
    "event_mae": Published("Event MAE + Point Cloud", "DVS Gesture", "97.75", "N/A"),
    "max_former": Published(
        "Max-Former + Frame",
        "DVS Gesture",
        "98.6",
        "1.45",
        "241.12 ± 0.55",
        "1077.35 ± 2.20",
        "10.29 + 23.89 = 34.18",
        "834",
    ),
    "rg_cnn": Published("GNN, CNN + Graph", "ASL-DVS", "90.10", "19.46"),
    "efv": Published(
        "GNN & Transformer + Image & Voxel Graph",
        "ASL-DVS",
        "99.60",
        "220.30",
        "78.08 ± 6.39",
        "200.16 ± 12.66",
        "55.12 + 10.90 = 66.02",
        "5464",
    ),
    "mstp": Published("ResNet-18 & BiGRU + Frame", "DVS-Lip", "72.1", "241.20"),
    "spikgru": Published(
        "Spiking ResNet18 & BiGRU + Frame",
        "DVS-Lip",
        "75.3",
        "223.63",
        "10.85 ± 0.03",
        "165.29 ± 2.25",
        "373.82 + 15.07 = 388.89",
        "1226",
    ),
}
