"""States of large systems from partial observations: Lorenz-96, or a system of the user's own."""
