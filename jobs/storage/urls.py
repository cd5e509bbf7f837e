"""Which places are URLs. Declarations ask it too, so it imports nothing."""


def is_url(place: str) -> bool:
    """Whether a place is a filesystem URL, as s3://bucket/orders, and not a path."""
    return "://" in place
