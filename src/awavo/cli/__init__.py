"""The command line: `main` finds the command, one file for each holds its options, its action and its printing."""
