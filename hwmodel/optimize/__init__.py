"""Closed forms of the best plan, each against a brute force or a simulation, and the search that rests on them."""
