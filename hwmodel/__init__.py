"""hwmodel: a performance model of LLM inference on hardware, existing or not yet built."""

__version__ = "0.1.0"
