"""A quadrotor in wind and among obstacles: rigid body, rotors, inner loop, force filter, flight tasks."""
