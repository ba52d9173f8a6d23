"""Recordings are read from CSV files, and malformed ones are refused by line and column."""

import numpy as np
import pytest

from fphys.identify import RecordingError, read

HEADER = "time,ctrl0,qpos0,qvel0"
ROWS = ["0,0,1,0", "0.01,0,0.99,-0.1", "0.02,0,0.98,-0.2", "0.03,0,0.97,-0.3"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda lines: [], "line 1: empty"),
        (lambda lines: ["time;ctrl0;qpos0;qvel0", *lines[1:]], "line 1, column 1: 'time;ctrl0"),
        (lambda lines: ["time,ctrl0,qpos0,speed", *lines[1:]], "line 1, column 4: 'speed'"),
        (lambda lines: ["time,ctrl0,qpos0,qpos0", *lines[1:]], "line 1, column 4: qpos0 is there twice"),
        (lambda lines: ["time,ctrl0,qpos0", *lines[1:]], "line 1: no column qvel0"),
        (lambda lines: [*lines[:2], "0.01,0,abc,0", *lines[3:]], "line 3, column qpos0: 'abc' is not a number"),
        (lambda lines: [*lines[:2], "0.01,0,,0", *lines[3:]], "line 3, column qpos0: '' is not a number"),
        (lambda lines: [*lines[:2], "0.01,nan,1,0", *lines[3:]], "line 3, column ctrl0: nan is not finite"),
        (lambda lines: [*lines[:2], "0.01,0,1", *lines[3:]], "line 3, column qvel0: missing"),
        (lambda lines: [*lines[:2], "0.01,0,1,0,5", *lines[3:]], "line 3, column 5: 5 values for 4"),
        (lambda lines: [*lines[:3], "0.01,0,1,0", lines[4]], "line 4, column time: not later"),
        (lambda lines: [*lines[:4], "0.05,0,1,0"], "line 5, column time: 0.03 s after"),
        (lambda lines: lines[:3], "line 3: 2 rows of numbers"),
        (lambda lines: [*lines[:2], "0.01,0,\x00,0", *lines[3:]], "line 3"),
        (lambda lines: [*lines[:2], "0.01,0," + "9" * 200_000 + ",0", *lines[3:]], "line 3"),
    ],
)
def test_a_malformed_recording_is_refused_by_line_and_column(tmp_path, change, where):
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(change([HEADER, *ROWS])))
    with pytest.raises(RecordingError) as caught:
        read(path, 1, 1, 1)
    assert f"{path}, " in str(caught.value)
    assert where in str(caught.value)


def test_columns_may_come_in_any_order(tmp_path):
    path = tmp_path / "good.csv"
    path.write_text("﻿qvel0, time,ctrl0,qpos0\r\n-1,0,3,2\r\n\r\n-2,0.5,6,4\r\n-3,1,9,6\r\n")
    motion = read(path, 1, 1, 1)
    np.testing.assert_array_equal(motion.time, [0, 0.5, 1])
    np.testing.assert_array_equal(motion.ctrl[:, 0], [3, 6, 9])
    np.testing.assert_array_equal(motion.x, [[2, -1], [4, -2], [6, -3]])
    assert motion.interval == 0.5
