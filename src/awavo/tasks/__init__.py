"""Functional environments, their Gymnasium faces, and host environments from elsewhere. Importing this loads no jax."""
