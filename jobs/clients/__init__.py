"""Outside systems, asked: each error of theirs becomes one of ours here."""
