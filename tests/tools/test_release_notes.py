"""A release says what changed in it, and is refused where tag, version and changelog differ."""

import pytest

from tools.release_notes import notes

CHANGELOG = (
    "# Changelog\n\n## Unreleased\n\n- more\n\n## 0.2.0 - 2026-12-01\n\n- a thing\n\n## 0.1.0 - "
    "2026-11-01\n\n- first\n"
)


def test_release_notes_are_the_changelog_section_of_the_version():
    assert notes("0.2.0", CHANGELOG, "0.2.0") == "- a thing"
    assert notes("0.1.0", CHANGELOG, "0.1.0") == "- first"


@pytest.mark.parametrize(("version", "declared"), [("0.3.0", "0.3.0"), ("0.2.0", "0.1.0")])
def test_a_tag_without_a_section_or_with_a_wrong_version_is_refused(version, declared):
    with pytest.raises(ValueError, match="says"):
        notes(version, CHANGELOG, declared)
