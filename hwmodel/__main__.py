"""``python -m hwmodel``."""

from hwmodel.cli import main

main()
