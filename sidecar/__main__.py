"""`python -m sidecar` is the command line."""

from sidecar.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
