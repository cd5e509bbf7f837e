"""What the Makefile runs on a developer's machine: no part of the product."""
