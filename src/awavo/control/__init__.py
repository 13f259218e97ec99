"""Controllers for the flight tasks: a tracking law, and AWaVO's inference over the analytic model."""
