"""Algorithms, one file per published method."""
