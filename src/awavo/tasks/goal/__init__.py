"""The goal task of GUARD, once for every robot, and the robots that play it."""
