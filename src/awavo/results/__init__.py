"""Results: the run store, statistics over seeds, comparison, plots and the report page. No jax in here."""

__all__: list[str] = []
