"""A trace of requests over step times: what a service gives, not a step."""
