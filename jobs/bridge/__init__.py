"""From a Spark partition to the async wait operator and back: what runs inside every task."""
