"""npy, npz and mat: columns by any usual name and type, whole or in pieces, and nothing else of the file."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import scipy.io
from conftest import assert_same, make_recording
from hypothesis import given
from hypothesis import strategies as st

from event2vec import Event2VecError, Event2VecWarning, Events, Sensor, read_events, write_events
from event2vec.io import read_recording
from event2vec.io.arrays import NAMES, columns_to_decoded, find_columns, read_npy, read_npy_pieces

PATH = Path("a.npz")
COLUMNS: dict[str, Any] = {"x": [1, 2, 9], "y": [3, 4, 5], "t": [5, 9, 9], "p": [1, 0, 1]}


def save(path, **columns):
    np.savez(path, **columns)
    return path


class TestNames:
    @pytest.mark.parametrize(("column", "name"), [(column, name) for column in NAMES for name in NAMES[column]])
    def test_every_synonym_is_found_in_any_case(self, column, name):
        for written in (name, name.upper(), name.capitalize()):
            others = [other for other in "xytp" if other != column]
            assert find_columns(PATH, [written, *others]) == {column: written, **{other: other for other in others}}

    def test_no_name_means_two_columns(self):
        names = [name for synonyms in NAMES.values() for name in synonyms]
        assert len(names) == len(set(names))

    def test_of_two_names_for_one_column_the_usual_one_is_taken(self):
        assert find_columns(PATH, ["time", "t", "ts", "x", "y", "on", "p"])["t"] == "t"

    def test_what_is_missing_is_listed_with_its_names_and_what_is_there(self):
        with pytest.raises(Event2VecError) as caught:
            find_columns(PATH, ["x", "events", "t"])
        assert str(caught.value) == (
            "a.npz: has no column for y (y/ys/y_pos/row), p (p/ps/pol/polarity); it has x, events, t"
        )
        with pytest.raises(Event2VecError, match=r"it has none$"):
            find_columns(PATH, [])
        with pytest.raises(Event2VecError) as caught:
            find_columns(PATH, [f"c{number}" for number in range(99)])
        assert str(caught.value).endswith("c10, c11"), "a dozen of them"


class TestColumns:
    @pytest.mark.parametrize(
        ("sides", "sensor"),
        [
            (np.array([34, 30]), Sensor(34, 30)),
            (np.array([30, 34], "u2"), Sensor(30, 34)),
            (np.array([34.0, 30.0]), None),
            (np.array([34, 30, 2]), None),
            (np.array([[34, 30]]), None),
            (np.array([0, 30]), None),
            (np.array([34, 70_000]), None),
            (np.array("DVXplorer"), None),
            (None, None),
        ],
        ids=str,
    )
    def test_only_two_whole_sides_are_a_sensor(self, sides, sensor):
        table = {name: np.array(column) for name, column in COLUMNS.items()}
        assert columns_to_decoded(PATH, table | {"sensor": sides}, None).sensor == sensor

    @pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 3), (1, 1, 3)])
    def test_columns_of_matlab_have_two_dimensions(self, shape):
        table = {name: np.array(column).reshape(shape) for name, column in COLUMNS.items()}
        found = columns_to_decoded(PATH, table, None)
        assert [getattr(found, name).tolist() for name in "xytp"] == [COLUMNS[name] for name in "xytp"]

    def test_a_table_in_place_of_a_column_is_refused(self, tmp_path):
        path = save(tmp_path / "a.npz", **(COLUMNS | {"x": np.ones((3, 3))}))
        with pytest.raises(Event2VecError, match=r"columns must be one-dimensional and equally long, got {'x': .3, 3."):
            read_events(path)

    @pytest.mark.parametrize("kind", ["U3", "c16", "M8[us]", "m8[us]", "S1"])
    def test_a_column_of_another_kind_is_named_with_its_type(self, kind, tmp_path):
        column = np.zeros(3, kind)
        path = save(tmp_path / "a.npz", **(COLUMNS | {"t": column}))
        with pytest.raises(Event2VecError, match=rf"has column t of type .{column.dtype.str[1]}?.*, expected numbers"):
            read_events(path)

    @pytest.mark.parametrize("intensity", [[3, 1, 2], [[3], [1], [2]], [3.0, 1.0, 2.0]])
    def test_whole_intensities_are_counts(self, intensity, tmp_path):
        assert read_events(save(tmp_path / "a.npz", **COLUMNS, intensity=intensity)).rho.tolist() == [3, 1, 2]

    def test_rho_is_taken_before_intensity(self, tmp_path):
        path = save(tmp_path / "a.npz", **COLUMNS, intensity=[3, 1, 2], rho=[1.5, 7, 2])
        assert read_events(path).rho.tolist() == [1.5, 7, 2]

    def test_our_own_clusters_within_a_second_stay_in_microseconds(self, tmp_path):
        """Only the authors' files have shares: they have `intensity` and no `rho`."""
        path = save(tmp_path / "a.npz", **(COLUMNS | {"t": [0.0, 1.0, 1.0]}), rho=[3, 1, 2])
        recording = read_recording(path)
        assert (recording.events.t.tolist(), recording.warnings) == ([0, 1, 1], ())
        whole = save(tmp_path / "a.npz", **(COLUMNS | {"t": [0, 1, 1]}), intensity=[3, 1, 2])
        assert read_events(whole).t.tolist() == [0, 1, 1], "and whole numbers are no shares"


class TestNpy:
    def written(self, tmp_path, array, version=(1, 0)):
        with (tmp_path / "a.npy").open("wb") as file:
            np.lib.format.write_array(file, array, version)
        return tmp_path / "a.npy"

    @pytest.mark.parametrize("version", [(1, 0), (2, 0)])
    @pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
    @pytest.mark.parametrize("kind", ["fields", "rows", "columns"])
    def test_pieces_hold_what_the_whole_holds(self, version, rows, kind, tmp_path):
        table = np.array([[5, 1, 3, 1], [9, 2, 4, 0], [9, 9, 5, 1], [12, 0, 0, 0]], "<i4")
        if kind == "fields":
            table = np.array([tuple(row) for row in table], [(name, "<i4") for name in "txyp"])
        elif kind == "columns":
            table = np.asfortranarray(table)
        path = self.written(tmp_path, table, version)
        whole, pieces = read_npy(path), list(read_npy_pieces(path, rows))
        sizes = [len(piece.t) for piece in pieces]
        assert sizes == [4] if kind == "columns" else max(sizes) == min(rows, 4)
        for name in "xytp":
            joined = np.concatenate([getattr(piece, name) for piece in pieces])
            assert joined.tolist() == getattr(whole, name).tolist()
        assert read_events(path).t.tolist() == [0, 4, 4, 7]

    @pytest.mark.parametrize(
        ("array", "found"),
        [
            (np.zeros((2, 3)), r"shape \(2, 3\) and type float64"),
            (np.zeros((2, 4, 1)), r"shape \(2, 4, 1\)"),
            (np.zeros(2, "i2"), r"shape \(2,\) and type int16"),
            (np.zeros((), "i2"), r"shape \(\) and type int16"),
        ],
    )
    def test_what_is_neither_fields_nor_four_columns_is_described(self, array, found, tmp_path):
        path = self.written(tmp_path, array)
        for read in (read_npy, lambda path: list(read_npy_pieces(path, 2))):
            with pytest.raises(Event2VecError, match=f"holds an array of {found}.*expected fields t, x, y, p or four"):
                read(path)

    def test_one_event_without_dimensions_is_an_event(self, tmp_path):
        array = np.array((5, 1, 3, 1), [(name, "i4") for name in "txyp"])
        assert read_events(self.written(tmp_path, array)).x.tolist() == [1]

    def test_a_file_that_is_cut_short_is_an_error_in_pieces_too(self, tmp_path):
        path = self.written(tmp_path, np.zeros((100, 4), "i8"))
        path.write_bytes(path.read_bytes()[:-200])
        for read in (read_npy, lambda path: list(read_npy_pieces(path, 2))):
            with pytest.raises(Event2VecError, match=r"the header claims 3200 bytes, the file has 31.*complete"):
                read(path)


class TestWritten:
    def test_columns_are_as_small_as_they_can_be_and_readable_by_numpy_alone(self, tmp_path):
        write_events(tmp_path / "a.npz", make_recording(50))
        with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
            assert {name: arrays[name].dtype.str for name in arrays} == {
                "x": "<u2",
                "y": "<u2",
                "t": "<i8",
                "p": "|b1",
                "rho": "<f4",
                "sensor": "<i8",
            }
            assert arrays["sensor"].tolist() == [34, 30]
            np.testing.assert_array_equal(arrays["y"], make_recording(50).y.numpy())

    @given(
        st.lists(
            st.tuples(
                st.floats(0, 33, width=32),
                st.floats(0, 29, width=32),
                st.integers(0, 2**40),
                st.booleans(),
                st.floats(1, 2**20, width=32),
            ),
            max_size=20,
        )
    )
    def test_whatever_events_are_written_the_same_come_back(self, rows):
        x, y, t, p, rho = zip(*rows, strict=True) if rows else ((),) * 5
        events = Events.from_arrays(x, y, t, p, sensor=(34, 30), rho=rho)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "any.npz"
            write_events(path, events)
            assert_same(read_events(path), events)


class TestAslDvs:
    """Its .mat files count rows from the bottom: what looks like one is turned, and that is said."""

    def saved(self, tmp_path, y, kind="u1", **more):
        column = np.array(y, kind)[:, None]
        zeros = np.zeros_like(column)
        scipy.io.savemat(tmp_path / "a.mat", {"ts": zeros, "x": zeros, "y": column, "pol": zeros} | more)
        return tmp_path / "a.mat"

    @pytest.mark.parametrize("kind", ["u1", "i2", "f8"])
    def test_rows_are_counted_from_the_top(self, kind, tmp_path):
        with pytest.warns(Event2VecWarning, match="which counts rows from the bottom: flipped upright"):
            events = read_events(self.saved(tmp_path, [0, 1, 179], kind))
        assert (events.y.tolist(), events.sensor) == ([179, 178, 0], Sensor(240, 180))

    def test_rows_beyond_its_sensor_and_other_variables_are_of_another_camera(self, tmp_path):
        assert read_events(self.saved(tmp_path, [0, 1, 180])).y.tolist() == [0, 1, 180]
        assert read_events(self.saved(tmp_path, [0, 1, 2], note=[[1.0]])).y.tolist() == [0, 1, 2]
