"""What days would call, why and at what cost, counted without a call or a write."""
