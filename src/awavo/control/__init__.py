"""Controllers for the flight tasks: the tracking law, and the one planner that is flown, recorded and explained."""
