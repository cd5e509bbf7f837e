"""What a SqlLookup may declare: a table or a select, checked without a database."""

import pytest

from tidegate import DeclarationError, Env, SqlLookup


def lookup(**fields):
    standard = {
        "name": "plane",
        "url": "postgresql+asyncpg://me@db/fleet",
        "keys": {"tailnum": "tail_number"},
        "returns": "seats INT",
        "timeout": 5.0,
        "max_concurrency": 4,
    }
    return SqlLookup(**standard | fields)


@pytest.mark.parametrize(
    "url", ["postgresql+asyncpg://me@db/fleet", "sqlite+aiosqlite:///planes.db", Env("ANY")]
)
@pytest.mark.parametrize(
    "select",
    [
        "SELECT seats FROM planes WHERE tailnum = :tailnum",
        "SELECT * FROM planes WHERE tailnum = :tailnum OR maker = :tailnum;",
        "WITH p AS (SELECT * FROM planes) SELECT seats, ':x' FROM p WHERE tailnum = :tailnum -- :y",
        "SELECT seats FROM a WHERE t = :tailnum UNION ALL SELECT seats FROM b WHERE t = :tailnum",
    ],
)
def test_a_select_whose_parameters_are_the_keys_is_taken(select, url):
    assert set(lookup(select=select, url=url).statement.parameters) == {"tailnum"}


def test_a_key_may_be_named_as_a_keyword_of_sql():
    keys = {"order": "o", "on": "d", "select": "s"}
    declared = lookup(
        select="SELECT seats FROM p WHERE a = :order AND b <= CAST(:on AS date) AND c = :select",
        keys=keys,
    )
    assert declared.statement.parameters == ("order", "on", "select")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "declare either a table or a select."),
        ({"table": "planes", "select": "SELECT 1"}, "declare either a table or a select."),
        (
            {"table": "a.b.c"},
            "table is 'a.b.c'; it must be table or schema.table, such as \"fleet.planes\".",
        ),
        (
            {"select": "SELECT seats FROM planes"},
            "select: 'tailnum' is in keys, but the select does not use it.",
        ),
        (
            {"select": "SELECT seats FROM p WHERE t = :tailnum AND m = :m"},
            "'m' is in the select, but is not a key.",
        ),
        (
            {"select": "SELECT wings FROM p WHERE t = :tailnum"},
            "returns: 'seats' is not a column of the select",
        ),
        (
            {"select": "SELECT seats FROM p WHERE t = :tailnum; DROP TABLE p"},
            "select holds 2 statements",
        ),
        (
            {"select": "DELETE FROM p WHERE t = :tailnum RETURNING seats"},
            "must be one SELECT that changes and locks",
        ),
        (
            {
                "select": (
                    "WITH d AS (DELETE FROM p WHERE t = :tailnum RETURNING seats) SELECT seats "
                    "FROM d"
                )
            },
            "must be one SELECT that changes and locks nothing; a lookup reads.",
        ),
        (
            {"select": "SELECT seats FROM p WHERE t = :tailnum FOR UPDATE"},
            "changes and locks nothing",
        ),
        ({"select": "SELECT seats INTO q FROM p WHERE t = :tailnum"}, "changes and locks nothing"),
        (
            {"select": "SELECT seats FROM p WHERE t = $1"},
            "values stand as :name, where name is a key",
        ),
        (
            {"select": "SELECT seats FROM p WHERE t = %(tailnum)s AND u = ?"},
            "values stand as :name",
        ),
        (
            {"select": "SELECT x[1:n] AS seats FROM p WHERE t = :tailnum"},
            "cannot be told from a parameter",
        ),
        ({"select": "SELECT seats FROM"}, "select cannot be read as SQL: 'SELECT seats FROM'."),
        ({"table": "p", "attempt_timeout": 0}, "attempt_timeout is 0 s; it must be over 0."),
        ({"table": "p", "batch_size": 0}, "batch_size is 0; it must be a whole number, at least 1"),
        (
            {"table": "p", "batch_size": 32_001},
            "batch_size is 32001; it must be a whole number, at least 1",
        ),
        (
            {"table": "p", "batch_size": 5, "timeout": None},
            "batch_size needs timeout or attempt_timeout",
        ),
        (
            {"table": "p", "batch_size": 5, "max_wait": 5.0},
            "a row leaves after timeout, 5.0 s; lower max_wait.",
        ),
        (
            {"table": "p", "batch_size": 5, "max_wait": -1},
            "max_wait is -1 s; it must be 0 or more.",
        ),
        (
            {"select": "SELECT seats FROM p WHERE t = :tailnum", "batch_size": 5},
            "Tidegate writes the query itself; leave batch_size out, or name a table.",
        ),
    ],
)
def test_a_query_that_cannot_work_is_refused_in_one_sentence(fields, message):
    with pytest.raises(DeclarationError) as error:
        lookup(**fields)
    assert str(error.value).startswith("lookup plane: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_batch_size_of_a_sql_lookup_changes_no_request_fingerprint():
    def facts(**fields):
        return lookup(**fields).request_facts()

    assert facts(table="planes") == facts(
        table="planes", batch_size=500, max_wait=1.0, attempt_timeout=2.0
    )
    select = "SELECT seats FROM planes WHERE tailnum = :tailnum"
    different = [
        facts(table="planes"),
        facts(table="boats"),
        facts(select=select),
        facts(select=select + " LIMIT 1"),
    ]
    assert all(one != other for one in different for other in different if one is not other)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://me:Zq9-secret@db/fleet",
        "postgresql+asyncpg://db/fleet?password=Zq9-secret",
    ],
)
def test_a_password_in_a_declaration_is_refused_without_being_repeated(url):
    with pytest.raises(DeclarationError) as error:
        lookup(table="planes", url=url)
    assert str(error.value).startswith('lookup plane: url holds a password; it must be Env("NAME")')
    assert "Zq9" not in str(error.value)
