"""The tables that readers see: the published days, their audit, and the summaries made from them."""
