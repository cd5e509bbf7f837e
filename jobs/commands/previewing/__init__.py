"""Makes and formats the preview of `tidegate try`."""
