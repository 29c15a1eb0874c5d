"""The best way to spread a model over chips: searched for, and proved."""
