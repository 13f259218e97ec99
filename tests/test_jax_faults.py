from importlib import metadata

from awavo.cli.doctor import float32_rows_are_right


def test_batched_products_are_right():
    """Fails on jax 0.10.2 on CPU, which pyproject excludes."""
    assert float32_rows_are_right()


def test_the_faulty_series_is_not_installed():
    assert not metadata.version("jax").startswith("0.10.")
