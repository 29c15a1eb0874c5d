"""Answers in forms people read: tables, trace files, pages."""
