"""Run the benchmarks and print the table."""

import argparse
from pathlib import Path

from tests.benchmarks.table import HEAD, measure_growth, measure_tree


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000], help="sizes of the trees")
    parser.add_argument("--runs", type=int, default=5, help="of each measurement; the median is shown")
    parser.add_argument("--directory", type=Path, help="where the trees are built; a disk that is used in life")
    args = parser.parse_args()
    print(HEAD)
    for files in args.files:
        for row in measure_tree(files, args.runs, args.directory):
            print(row.text(), flush=True)
    for row in measure_growth(min(args.files), 100, args.directory):
        print(row.text(), flush=True)


if __name__ == "__main__":
    main()
