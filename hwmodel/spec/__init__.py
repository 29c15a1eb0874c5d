"""The edge: YAML and JSON with line and column, units, names to files, errors. The only room that knows YAML."""
