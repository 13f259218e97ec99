"""`python -m awavo.cli`."""

from awavo.cli.main import entry

entry()
