"""Plans runs: keys, calls and cost before any call, and what a person approved of them."""
