"""The licences of the pinned packages."""

from email.message import Message
from importlib import metadata

import audit
import pytest


def test_every_pinned_package_has_an_allowed_licence():
    names = audit.pinned()
    assert len(names) > 100 and audit.problems(names) == []
    assert audit.EXCEPTIONS.keys() <= set(names), "an exception for a package that is no longer pinned"


def about(**fields):
    made = Message()
    for name, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            made[name.replace("_", "-")] = value
    return made


@pytest.mark.parametrize(
    ("fields", "fine"),
    [
        (dict(License_Expression="Apache-2.0"), True),
        (dict(License_Expression="MIT OR GPL-3.0-only"), True),
        (dict(License_Expression="MIT AND GPL-3.0-only"), False),
        (dict(License_Expression="AGPL-3.0-or-later"), False),
        (dict(License="BSD 2-Clause License"), True),
        (dict(License="Apache License, Version 2.0"), True),
        (dict(License="LGPLv3"), False),
        (dict(License="UNKNOWN"), False),
        (dict(License="GPL\nThis program is free software", Classifier=["License :: OSI Approved :: MIT License"]), True),
        (dict(Classifier=["License :: OSI Approved :: GNU General Public License v3 (GPLv3)"]), False),
        (dict(Classifier=["License :: OSI Approved"]), False),
        ({}, False),
    ],
)
def test_licences(fields, fine):
    assert (audit.problems(["some"], lambda name: about(**fields)) == []) is fine


def test_what_is_not_installed_is_not_looked_at():
    def find(name):
        raise metadata.PackageNotFoundError(name)

    assert audit.problems(["nothing"], find) == []


def test_a_package_that_no_database_was_asked_about_does_not_count_as_checked():
    skipped = {"name": "a", "skip_reason": "not found on PyPI"}
    clean = {"name": "b", "version": "1.0", "vulns": []}
    bad = {"name": "c", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}
    assert audit.vulnerabilities({"dependencies": [skipped]})[1].startswith("vulnerabilities: NOT CHECKED")
    found, said = audit.vulnerabilities({"dependencies": [skipped, clean, bad]})
    assert found == ["c 2.0: CVE-1, fixed in 2.1"]
    assert said == "vulnerabilities: 2 packages checked, 1 found, not checked: a"
