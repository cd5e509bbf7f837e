"""Tables for readers: where they are, where else they are shown, and windows over them."""
