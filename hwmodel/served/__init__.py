"""Served models against measurements: rows of served models as deployments, and what an engine adds to the ops of a step."""
