"""Runs: built from names and options, trained, evaluated, certified, explained, exported, drawn."""
