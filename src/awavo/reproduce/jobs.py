"""`python -m awavo.reproduce.jobs`, the command that stored results name; the code is `awavo.paper.jobs`."""

from awavo.paper.jobs import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
