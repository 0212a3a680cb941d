"""Fixtures that several test files share, and how tests are run side by side."""

import ctypes
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import hypothesis
import numpy as np
import pytest
import torch

from event2vec import Events, Sensor
from event2vec.machine.atomic import whole_file
from event2vec.machine.cpu import fix_order_of_sums
from event2vec.model import compiled_attention

SMALL = Sensor(34, 30)
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


# The same examples every time, and no limit in seconds: a busy machine must not fail a test.
hypothesis.settings.register_profile(
    "same everywhere",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("same everywhere")


def pytest_configure() -> None:
    fix_order_of_sums()  # as every program does before its first product; afterwards it is too late
    if "PYTEST_XDIST_WORKER" in os.environ:  # every core has a test; more threads would wait for each other
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        torch.set_num_threads(1)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # started in the background: processes of tests inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no core waits for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


class Pictures:
    """Whether a training and an evaluation draw what they leave. It takes longer than the small ones of tests.

    Figures have tests of their own, and processes of tests draw them; here, tests with the mark `pictures` do.
    """

    BLANK: ClassVar = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>"}
    wanted = False

    @classmethod
    def or_blank(cls, draw: Callable[..., None]) -> Callable[..., None]:
        def draw_or_leave_blank(*arguments: Any) -> None:
            if cls.wanted:
                draw(*arguments)
                return
            (path,) = (argument for argument in arguments if isinstance(argument, Path))
            for suffix, content in cls.BLANK.items():
                with whole_file(path.with_suffix(suffix)) as temporary:
                    temporary.write_bytes(content)

        return draw_or_leave_blank


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    Pictures.wanted = item.get_closest_marker("pictures") is not None
    torch.default_generator.manual_seed(0)  # so that a test draws the same whatever ran before it


@pytest.fixture(scope="session", autouse=True)
def _pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("draw_curves", "draw_confusion", "draw_reliability"):
            place = f"event2vec.training.run.{name}"
            patch.setattr(place, Pictures.or_blank(pkgutil.resolve_name(place)))
        yield


class Team:
    """In place of torch's threads: does compiled work on one, and notes how many were asked for each time."""

    WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    START = ctypes.CFUNCTYPE(None, WORK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)

    def __init__(self, monkeypatch: pytest.MonkeyPatch, threads: int, began: Callable[[], None] = lambda: None) -> None:
        self.asked: list[int] = []
        self.began = began
        self.start = self.START(self._run)
        monkeypatch.setattr(compiled_attention, "team", lambda: ctypes.cast(self.start, ctypes.c_void_p).value)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)

    def _run(self, work: Callable[[int], None], data: int, threads: int, flags: int) -> None:
        self.asked.append(threads)
        self.began()
        work(data)


@pytest.fixture
def shared_data() -> Path:
    """Real recordings, beside the project; tests that need them are skipped without."""
    if not SHARED.is_dir():
        pytest.skip("the shared recordings are not beside the project")
    return SHARED


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium without a window; tests that need it are skipped where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass(frozen=True)
class SmallDisk:
    """A disk of its own, of which little is free."""

    folder: Path

    def grow(self) -> None:
        subprocess.run(["mount", "-o", "remount,size=64m", self.folder], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a disk of its own cannot be mounted here: that is for root on Linux")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def make_recording(count: int, seed: int = 0, sensor: Sensor = SMALL, duration: int = 300_000) -> Events:
    random = np.random.default_rng((seed, 0, count))
    x, y = random.integers(0, sensor.width, count), random.integers(0, sensor.height, count)
    t = np.sort(random.integers(0, duration, count))
    return Events.from_arrays(x, y, t, random.integers(0, 2, count), sensor=sensor)


@pytest.fixture
def make_events() -> Callable[..., Events]:
    return make_recording


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], list[Any]]:
    """Replace a function of the library by one that notes how it was called."""

    def replace(name: str, answer: Any) -> list[Any]:
        calls: list[Any] = []
        monkeypatch.setattr(name, lambda *given, **named: calls.append((given, named)) or answer)
        return calls

    return replace


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def assert_same(one: Events, other: Events) -> None:
    """Equal to the bit, sensor and all."""
    assert one.sensor == other.sensor
    for name in ("x", "y", "t", "p", "rho"):
        np.testing.assert_array_equal(getattr(one, name).numpy(), getattr(other, name).numpy(), err_msg=name)


Network = TypeVar("Network", bound=torch.nn.Module)


def randomise(model: Network, seed: int = 0) -> Network:
    """Make every weight random: fresh biases are zero and fresh norms one, and would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.3
            parameter.mul_(0.5 if parameter.ndim < 2 else 0).add_(
                torch.randn(parameter.shape, generator=generator) * scale
            )
    return model.eval()
