"""Answers set side by side: who wins where, and where curves cross."""
