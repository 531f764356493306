"""What it costs, each time beside something else that does the same on the same tree in the same run.

    python -m tests.benchmarks                  trees of 1,000 and 10,000 files
    python -m tests.benchmarks --files 100000   the large one (about 1 GB, and as much again for each store)

Numbers are only worth something as ratios: the machine, its disk and its load are in both.
"""
