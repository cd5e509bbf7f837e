"""Divides whole numbers into shares: max-min fair, or even."""

from collections.abc import Sequence


def fair_shares(total: int, wants: Sequence[int]) -> list[int]:
    """Divide `total` max-min fairly: no share exceeds its want, and the least share is maximal.

    Args:
        total: The amount.
        wants: By owner in order of arrival; the remainder of a division goes to the first owners.
    """
    given = [0] * len(wants)
    left = total
    by_want = sorted(range(len(wants)), key=wants.__getitem__)
    for done, place in enumerate(by_want):
        even, over = divmod(left, len(wants) - done)
        if wants[place] > even:  # so do all that follow
            for number, other in enumerate(sorted(by_want[done:])):
                given[other] = even + (number < over)
            break
        given[place] = wants[place]
        left -= wants[place]
    return given


def useful_shares(total: int, wants: Sequence[int], least: int) -> list[int]:
    """Divide like fair_shares, but give no share that is too small to start a call.

    If a fair share is less than a call needs, as many owners as can call get shares, in order of
    arrival, and the others wait for them. Otherwise all would wait for each other.

    Args:
        total: The amount.
        wants: By owner in order of arrival. A want below `least` is in use, and no call starts with
            it.
        least: What a call needs to start.
    """
    fair = fair_shares(total, wants)
    calling = [place for place, want in enumerate(wants) if want >= least]
    if not any(0 < fair[place] < least for place in calling):
        return fair
    left = max(0, total - sum(want for want in wants if want < least))
    served = calling[: max(1, left // least)]
    shares = [want if want < least else 0 for want in wants]
    for place, share in zip(
        served, fair_shares(left, [wants[place] for place in served]), strict=True
    ):
        shares[place] = share
    return shares


def even_shares(total: int, parts: int) -> tuple[int, ...]:
    return tuple(fair_shares(total, [total] * parts))
