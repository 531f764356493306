"""The benchmarks run; what they measure is not judged here."""

from tests.benchmarks.table import measure_growth, measure_tree


def test_every_row_is_measured(tmp_path):
    rows = [*measure_tree(60, 1, tmp_path), *measure_growth(60, 3, tmp_path)]
    assert len(rows) == 8
    assert all(row.text() for row in rows)
    assert all(row.ours_mb > 0 or (row.ours and row.ours.wall_s > 0) for row in rows)
    assert list(tmp_path.iterdir()) == []
