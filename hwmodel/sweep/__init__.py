"""A whole design space: axes to points, points to columns, packed once and priced many times."""
