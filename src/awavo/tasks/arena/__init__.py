"""Safety-Gymnasium's navigation tasks: a point or a car among hazards, vases, buttons, gremlins, pillars and a box."""
