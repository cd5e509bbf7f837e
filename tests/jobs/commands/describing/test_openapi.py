"""`tidegate init --openapi`: six documents, each to its first answer from a real server."""

import ast
import base64
import importlib
import json
import os
import random
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from jobs.commands.describing.openapi_declaration import describe
from jobs.commands.describing.openapi_document import OpenApi
from jobs.declare.values.key_expressions import columns_in
from jobs.errors import DeclarationError
from tidegate import ApiKey, Env, Pages
from tidegate.__main__ import main

DOCUMENTS = Path(__file__).parent / "documents"
BASIC = f"Basic {base64.b64encode(b'secret:secret').decode()}"
# by document: the only request that the service answers, the header it wants, its answer, and what
# `try` shows of it
SERVICES = {
    "pets.yaml": (
        "/api/v3/pet/10",
        ("api_key", "secret"),
        {"id": 10, "name": "Rex", "category": {"id": 3, "name": "dogs"}, "status": "sold"},
        "name=Rex  category_id=3  category_name=dogs  status=sold",
    ),
    "payments.json": (
        "/v1/customers/cus_9s6",
        ("Authorization", BASIC),
        {"id": "cus_9s6", "created": 1_700_000_000, "livemode": False, "address": {"city": "Bonn"}},
        "address_city=Bonn",
    ),
    "code_hosting.json": (
        "/repos/octocat/hello-world",
        ("X-Api-Version", "2022-11-28"),
        {"id": 7, "full_name": "octocat/hello-world", "pushed_at": "2026-11-19T07:00:00Z",
         "license": None, "stargazersCount": 80},
        "stargazers_count=80  id=7  full_name=octocat/hello-world",
    ),
    "weather.yaml": (
        "/data/2.5/forecast?appid=secret&lat=52.52&lon=-13.5&units=metric",
        None,
        {"coord": {"lat": 52.52, "lon": -13.5}, "main": {"temp": 3, "feels-like": 1.5}, "dt": 9},
        "main_temp=3.0  main_feels_like=1.5",
    ),
    "companies.json": (
        "/company/00000006",
        ("Authorization", "Bearer granted"),
        {"company_name": "MARINE", "companyNumber": "00000006", "date_of_creation": "1862-10-25",
         "registered_office_address": {"x-lines.1": "1 Quay"}},
        "company_name=MARINE  date_of_creation=1862-10-25",
    ),
    "geocoder.json": (
        "/v1/search?format=jsonv2&q=1%20Main%20St%2C%20Berlin",
        None,
        {"results": [{"formatted_address": "Berlin", "geometry": {"location": {"lat": 52.5}}}]},
        "formatted_address=Berlin  geometry_location_lat=52.5",
    ),
}  # fmt: skip


@pytest.fixture
def serve():
    """Starts a service that answers one request, and a token's; returns its address and log."""
    servers = []

    def start(request, header, answer):
        log = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                path, _, query = self.path.partition("?")
                log.append("?".join(filter(None, [path, "&".join(sorted(query.split("&")))])))
                allowed = header is None or self.headers.get(header[0]) == header[1]
                status = 401 if not allowed else 200 if log[-1] == request else 404
                self.answer(status, answer if status == 200 else {"message": "no"})

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(200, {"access_token": "granted", "expires_in": 600})

            def answer(self, status, body):
                body = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", log

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.process
@pytest.mark.usefixtures("modules_of_others")
@pytest.mark.parametrize("name", SERVICES)
def test_a_document_becomes_a_declaration_whose_first_row_has_the_answer(
    tmp_path, monkeypatch, capsys, serve, name
):
    request, header, answer, shown = SERVICES[name]
    url, log = serve(request, header, answer)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert main(["init", "--openapi", str(DOCUMENTS / name), "shop"]) == 0
    monkeypatch.chdir("shop")
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    importlib.invalidate_caches()
    variables = re.sub(r"https?://[^/\n]*", url, Path(".env").read_text())
    Path(".env").write_text(variables.replace("=\n", "=secret\n"))
    (declared,) = [path for path in Path("enrichments").glob("*.py") if path.stem != "__init__"]
    assert max(map(len, declared.read_text().splitlines())) <= 100
    assert main(["check"]) == 0, capsys.readouterr().out
    assert log == []
    assert main(["try", declared.stem]) == 0
    printed = capsys.readouterr().out
    assert shown in re.sub(r"\n +", "  ", printed)
    assert "secret" not in printed
    assert log == [request]


def written(operation, name):
    return describe(OpenApi(DOCUMENTS / name), operation).code


def test_a_list_below_an_id_becomes_one_column_of_objects_over_its_pages():
    code = written("officers", "companies.json")
    assert '"items ARRAY<STRUCT<"\n        "name: STRING, "\n        "appointed_on: DATE>>"' in code
    pages = 'Pages( next="$.meta.nextPageToken", parameter="page_token", items="$.items"'
    assert pages in re.sub(r"\s+", " ", code)


def test_a_search_takes_the_first_item_and_an_empty_list_is_a_miss():
    assert 'miss_when=[404, "length($.data) == 0"]' in written("GetCustomers", "payments.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"swagger": "2.0"}', "is not an OpenAPI document of version 3 (openapi: '')"),
        ("[", "cannot be read"),
        ('{"openapi": "3.0.0", "paths": {"/a": {"$ref": "b.json"}}}', "bundle it into one file"),
        ('{"openapi": "3.0.0", "paths": {"/a": {"$ref": "#/paths/~1a"}}}', "leads to itself"),
        ('{"openapi": "3.0.0", "paths": {}}', "no GET operation that asks by a key for JSON"),
    ],
)
def test_a_document_without_a_lookup_is_refused_in_one_sentence(tmp_path, capsys, text, message):
    (tmp_path / "spec.json").write_text(text)
    assert main(["init", "--openapi", str(tmp_path / "spec.json"), str(tmp_path / "shop")]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "shop").exists()


def test_an_unknown_operation_is_refused_with_the_closest_name():
    with pytest.raises(Exception, match="Did you mean 'officers'"):
        written("oficers", "companies.json")


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def of(*required, **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


def rows_of(**fields):
    return {"type": "array", "items": of(**fields)}


def parameter(name, place="path", schema=TEXT, **more):
    return {"name": name, "in": place, "required": True, "schema": schema, **more}


def declared(
    folder, path, parameters, answer, *, title="Shop", summary="It", headers=(), body=None, **more
):
    """The declaration of a document with one operation, the lookup as loaded, and the row."""
    content = {"content": {"application/json": {"schema": answer}}, "headers": dict(headers)}
    operation = {"summary": summary, "parameters": parameters, "responses": {"200": content}}
    if body is not None:
        operation |= {"requestBody": {"content": {"application/json": {"schema": body}}}}
    methods = {"get" if body is None else "post": {**operation, "operationId": "it"}}
    whole = {"openapi": "3.0.0", "info": {"title": title}, "paths": {path: methods}, **more}
    (folder / "spec.json").write_text(json.dumps(whole))
    made = describe(OpenApi(folder / "spec.json"), None if body is None else "it")
    loaded = {}
    exec(made.code, loaded)
    return made.code, loaded[made.name], made.row


@pytest.mark.parametrize(
    "text",
    ['"""+__import__("os").putenv("A", "b")+"""', "\\N \\", 'a"', "a\0b\nimport os", "\ud800"],
)
def test_no_text_of_a_document_becomes_code(tmp_path, text):
    answer, code = of(**{text: TEXT, "name": TEXT}), ""
    inputs = [
        parameter("id", example=text),
        parameter("X-A", "header", {**TEXT, "default": "b"}),
        parameter(f"q{text}", "query", {**TEXT, "default": text}),
    ]
    for title, summary, path in ((text, "It", "/a/{id}"), ("Shop", text, "/a/{id}")):
        code, _, _ = declared(
            tmp_path, path, inputs[:2], of(name=TEXT), title=title, summary=summary
        )
        first, *others = ast.parse(code).body
        assert isinstance(first.value, ast.Constant)
        assert {type(other) for other in others} == {ast.ImportFrom, ast.Assign}
    try:
        code, _, _ = declared(tmp_path, "/a/{id}", inputs, answer)
    except DeclarationError:  # refused by name; a lookup never has such a field or parameter
        return
    called = {node.func.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)}
    assert called == {"Enrichment", "Env", "HttpLookup", "Input", "Output", "Service"}


@pytest.mark.parametrize("title", ["AWS endpoint", "Tidegate limits", "Pip index", "aws"])
def test_a_title_sets_no_variable_that_other_programs_read(tmp_path, title):
    code, _, _ = declared(tmp_path, "/a/{id}", [parameter("id")], of(name=TEXT), title=title)
    variable = f"SERVICE_{title.upper().replace(' ', '_')}_URL"
    assert f'Env("{variable}")' in code


def test_each_item_of_a_list_keeps_its_fields_together(tmp_path):
    answer = {"type": "array", "items": of("sku", sku=TEXT, discount={"type": "number"})}
    _, lookup, _ = declared(tmp_path, "/users/{user_id}/lines", [parameter("user_id")], answer)
    assert lookup.returns == "items ARRAY<STRUCT<sku: STRING, discount: DOUBLE>>"
    assert lookup.paths == {"items": "$"}


def test_an_object_with_a_list_is_not_taken_for_the_list(tmp_path):
    answer = of("no", no=TEXT, name=TEXT, addresses=rows_of(city=TEXT))
    code, lookup, _ = declared(tmp_path, "/customers", [parameter("email", "query")], answer)
    assert [column.name for column in lookup.columns] == ["no", "name"]
    assert lookup.miss_when == (404,)
    assert '# also in an answer: "addresses"' in code


ADDRESS, YES = {**TEXT, "format": "uri"}, {"type": "boolean"}


@pytest.mark.parametrize(
    ("sent", "told", "pages", "errors"),
    [
        ("page", {"total_pages": NUMBER}, None, ("$.total_pages > 1",)),
        ("page", {"has_more": YES}, None, ("$.has_more == true",)),
        ("offset", {"total": NUMBER}, None, ("length($.data) < $.total",)),
        ("page", {"next": NUMBER}, "page", ()),
        ("cursor", {"next": ADDRESS}, "", ()),
        ("cursor", {"next": TEXT}, None,
         ("$.next && $.next != null && $.next != '' && $.next != false",)),
    ],
)  # fmt: skip
def test_a_list_follows_its_pages_or_declares_a_partial_list_an_error(
    tmp_path, sent, told, pages, errors
):
    inputs = [parameter("id"), {"name": sent, "in": "query", "schema": TEXT}]
    answer = of(data=rows_of(total=TEXT), **told)
    _, lookup, _ = declared(tmp_path, "/users/{id}/orders", inputs, answer)
    assert lookup.error_when == errors
    assert (lookup.pages and (lookup.pages.parameter or "")) == pages


def test_a_list_continues_after_its_last_item_while_more_items_are_announced(tmp_path):
    inputs = [parameter("id"), {"name": "starting_after", "in": "query", "schema": TEXT}]
    answer = of(data=rows_of(id=TEXT), has_more=YES)
    code, lookup, _ = declared(tmp_path, "/users/{id}/charges", inputs, answer)
    assert lookup.pages == Pages(
        next="$.data[-1].id", parameter="starting_after", more="$.has_more", items="$.data",
        max_pages=20,
    )  # fmt: skip
    assert max(map(len, code.splitlines())) <= 100
    answer = of(data=rows_of(id=TEXT), has_more=YES, last_id=TEXT)
    _, lookup, _ = declared(tmp_path, "/users/{id}/charges", inputs, answer)
    assert lookup.pages.next == "$.last_id"


def test_a_list_with_a_link_header_is_continued_by_the_header(tmp_path):
    inputs = [parameter("user"), {"name": "page", "in": "query", "schema": NUMBER}]
    of_link = {"headers": {"Link": {"schema": TEXT}}}
    answer = {"type": "array", "items": of(name=TEXT)}
    _, lookup, _ = declared(tmp_path, "/users/{user}/repos", inputs, answer, **of_link)
    assert lookup.pages == Pages(next="Link", items="$", max_pages=20)


def test_a_list_without_known_pages_is_read_as_complete_with_a_note(tmp_path, capsys):
    answer = {"type": "array", "items": of(name=TEXT)}
    code, lookup, _ = declared(tmp_path, "/users/{user}/repos", [parameter("user")], answer)
    assert "# the document describes no pages: its list is read as complete" in code
    assert lookup.pages is None
    arguments = ["init", "--openapi", str(tmp_path / "spec.json"), str(tmp_path / "shop")]
    assert main(arguments) == 0
    said = "The document describes no pages: its list is read as complete.\n"
    assert said in capsys.readouterr().out
    code, _, _ = declared(tmp_path, "/users/{user}", [parameter("user")], of(name=TEXT))
    assert "as whole" not in code


@pytest.mark.usefixtures("modules_of_others")
def test_a_post_is_a_lookup_if_the_user_declares_that_it_only_reads(
    tmp_path, monkeypatch, capsys, service
):
    sent = []

    async def answer(request):
        sent.append(await request.json())
        return web.json_response({"label": "price", "score": 0.5})

    service.answer = answer
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    spec = str(DOCUMENTS / "classifier.json")
    assert main(["init", "--openapi", spec, "shop"]) == 2
    assert "choose one that only reads with --operation: label_v1_label_post" in (
        capsys.readouterr().err
    )
    assert main(["init", "--openapi", spec, "--operation", "label_v1_label_post", "shop"]) == 0
    monkeypatch.chdir("shop")
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    importlib.invalidate_caches()
    Path(".env").write_text(f"FAST_API_URL={service.url}\nFAST_API_TOKEN=secret\n")
    assert main(["check"]) == 0, capsys.readouterr().out
    assert main(["try", "label"]) == 0
    assert "label=price  score=0.5" in re.sub(r"\n +", "  ", capsys.readouterr().out)
    assert sent == [{"text": "It was late.", "model": "{small}", "top_k": 3}]


COOKIE = {"type": "apiKey", "in": "cookie", "name": "session"}
HEADER = {"type": "apiKey", "in": "header", "name": "X-Key"}


@pytest.mark.parametrize(
    ("ways", "auth"),
    [
        ([{"session": []}], "its auth (apiKey cookie) is not supported by a lookup"),
        ([{"session": []}, {"key": []}], ApiKey(Env("SHOP_KEY"), header="X-Key")),
        ([{}, {"session": []}], None),
        ([], None),
    ],
)
def test_the_first_known_authentication_is_used_and_an_unknown_one_is_refused(tmp_path, ways, auth):
    schemes = {"components": {"securitySchemes": {"session": COOKIE, "key": HEADER}}}
    document = schemes | {"security": ways}
    of_path = (tmp_path, "/a/{id}", [parameter("id")], of(name=TEXT))
    if isinstance(auth, str):
        with pytest.raises(DeclarationError, match=re.escape(auth)):
            declared(*of_path, **document)
    else:
        assert declared(*of_path, **document)[1].service.auth == auth


def test_a_list_without_a_known_end_is_refused(tmp_path):
    inputs = [parameter("id"), {"name": "page", "in": "query", "schema": NUMBER}]
    with pytest.raises(DeclarationError, match="nothing known in an answer tells whether"):
        declared(tmp_path, "/users/{id}/orders", inputs, of(data=rows_of(total=TEXT)))


def test_an_answer_echoes_its_key_under_the_keys_name_before_id(tmp_path):
    whose, answer = [parameter("user_id")], of(id=TEXT, user_id=TEXT, name=TEXT)
    _, lookup, _ = declared(tmp_path, "/users/{user_id}/account", whose, answer)
    assert lookup.echo == {"user_id": "$.user_id"}
    _, lookup, _ = declared(tmp_path, "/users/{user_id}/account", whose, of(id=TEXT, name=TEXT))
    assert lookup.echo == {}


def test_only_required_headers_are_sent_and_booleans_are_lower_case(tmp_path):
    inputs = [
        parameter("id", schema=NUMBER, example="42"),
        parameter("verbose", "query", {"type": "boolean", "default": True}),
        parameter("X-Dry-Run", "header", {"type": "boolean", "default": False}),
        {"name": "If-None-Match", "in": "header", "schema": TEXT, "example": '"abc"'},
    ]
    _, lookup, row = declared(tmp_path, "/c/{id}", inputs, of(name=TEXT))
    assert lookup.request == "GET /c/{id}?verbose=true"
    assert lookup.headers == {"X-Dry-Run": "false"}
    assert row == {"id": 42}


def test_a_required_header_without_a_value_is_named_in_a_remark(tmp_path):
    inputs = [parameter("id"), parameter("X-Request", "header"), parameter("X-Key", "header")]
    key = {"type": "apiKey", "in": "header", "name": "x-key"}
    secured = {"components": {"securitySchemes": {"key": key}}, "security": [{"key": []}]}
    declared(tmp_path, "/c/{id}", inputs, of(name=TEXT), **secured)
    (remark,) = describe(OpenApi(tmp_path / "spec.json")).remarks
    assert remark == (
        "The service requires the header X-Request, and the document gives no value for it: write "
        "it into headers=."
    )


@pytest.mark.parametrize("name", ["date", "class", "2nd", "Date"])
def test_names_that_are_invalid_in_a_declaration_are_changed(tmp_path, name):
    path, at = f"/class/{{{name}}}", [parameter(name)]
    _, lookup, row = declared(tmp_path, path, at, of(name=TEXT))
    assert lookup.name == "class_lookup"
    assert set(row) == set(lookup.keys)


@pytest.mark.parametrize("name", ["from", "commit", "values", "if", "current_date", "Show"])
def test_a_parameter_named_by_a_word_of_sql_is_a_key_that_reads_its_column(tmp_path, name):
    asked = [parameter(name, "query")]
    _, lookup, row = declared(tmp_path, "/rates", asked, of(rate=NUMBER))
    (key,) = lookup.keys
    assert columns_in("keys", lookup.keys[key]) == {key}
    assert lookup.request == f"GET /rates?{name}={{{key}}}"
    assert set(row) == {key}


def test_a_field_named_by_a_word_of_sql_is_a_column(tmp_path):
    asked, answer = [parameter("id")], of(select=TEXT, here=of(**{"not": NUMBER}))
    _, lookup, _ = declared(tmp_path, "/rates/{id}", asked, answer)
    assert [column.name for column in lookup.columns] == ["select", "here_not"]
    _, lookup, _ = declared(tmp_path, "/rates/{id}", asked, rows_of(Not=TEXT))
    assert lookup.columns[0].arrow_type.value_type.names == ["Not"]


def test_a_field_whose_name_begins_with_a_digit_is_a_column(tmp_path):
    asked, answer = [parameter("id")], of(**{"24h": of(low=NUMBER), "52WeekHigh": NUMBER})
    _, lookup, _ = declared(tmp_path, "/coins/{id}", asked, answer)
    assert lookup.paths == {
        "coins_24h_low": '$["24h"].low',
        "coins_52_week_high": '$["52WeekHigh"]',
    }


def test_a_format_of_another_type_changes_no_column(tmp_path):
    answer = of(
        at={"type": "integer", "format": "date-time"}, day={"type": "string", "format": "date"},
        many={"type": "string", "format": "int32"}, few={"type": "integer", "format": "int32"},
    )  # fmt: skip
    _, lookup, _ = declared(tmp_path, "/c/{id}", [parameter("id")], answer)
    kinds = {column.name: column.spark_type for column in lookup.columns}
    assert kinds == {"at": "BIGINT", "day": "DATE", "many": "STRING", "few": "INT"}


def test_a_child_among_the_choices_of_its_parent_is_read_once(tmp_path):
    child = {"allOf": [{"$ref": "#/components/schemas/Parent"}, of(name=TEXT)]}
    parent = {**of(id=NUMBER), "oneOf": [{"$ref": "#/components/schemas/Child"}]}
    schemas = {"components": {"schemas": {"Parent": parent, "Child": child}}}
    for name in ("Parent", "Child"):
        answer = {"$ref": f"#/components/schemas/{name}"}
        _, lookup, _ = declared(tmp_path, "/c/{key}", [parameter("key")], answer, **schemas)
        assert {column.name for column in lookup.columns} == {"id", "name"}


def test_only_what_all_choices_share_is_required_or_has_a_type(tmp_path):
    moment = {"type": "string", "format": "date-time"}
    first = of("id", "name", id=TEXT, name=TEXT)
    fields = of(at={"anyOf": [moment, NUMBER]}, day={"oneOf": [moment, TEXT]})
    whose = {"anyOf": [TEXT, of(name=TEXT)]}
    answer = {"properties": fields["properties"], "oneOf": [first, of("id", id=TEXT)]}
    answer["properties"] |= {"whose": whose, "none": {"anyOf": [moment, {"type": "null"}]}}
    _, lookup, _ = declared(tmp_path, "/c/{key}", [parameter("key")], answer)
    kinds = {column.name: column.spark_type for column in lookup.columns}
    plain = dict.fromkeys(("id", "name", "day", "whose"), "STRING")
    assert kinds == plain | {"none": "TIMESTAMP"}
    assert lookup.required == ("id",)


def test_a_query_with_a_default_of_several_values_is_refused_as_that(tmp_path):
    asked = [parameter("id"), parameter("only", "query", {"type": "array", "default": ["a"]})]
    with pytest.raises(DeclarationError, match=r"the default \['a'\], which is not a single value"):
        declared(tmp_path, "/a/{id}", asked, of(name=TEXT))


def test_a_document_in_yaml_has_the_types_of_json(tmp_path):
    asked = parameter("since", "query", {**TEXT, "default": "2026-11-19"})
    answer = of(no=NUMBER, on=TEXT, at=TEXT)
    operation = {"parameters": [parameter("id"), asked], "responses": {"200": {"content": {
        "application/json": {"schema": answer}}}}}  # fmt: skip
    whole = {
        "openapi": "3.0.0",
        "info": {"title": "Shop"},
        "paths": {"/a/{id}": {"get": operation}},
    }
    (tmp_path / "spec.json").write_text(json.dumps(whole))
    # as people write it: without the quotes that yaml.safe_dump sets
    text = re.sub("'(no|on|2026-11-19)'", r"\1", yaml.safe_dump(whole, sort_keys=False))
    assert " no:" in text
    assert "default: 2026-11-19" in text
    (tmp_path / "spec.yaml").write_text(f"\ufeff{text}", encoding="utf-8")
    of_json, of_yaml = (describe(OpenApi(tmp_path / f"spec.{end}")) for end in ("json", "yaml"))
    assert of_yaml == of_json
    assert '"no BIGINT, "' in of_yaml.code


@pytest.mark.parametrize("no", ["false", "False", "FALSE"])
def test_a_parameter_may_be_left_out_in_each_spelling_of_yaml(tmp_path, no):
    asked = parameter("lang", "query") | {"required": False}
    operation = {"parameters": [parameter("id"), asked], "responses": {"200": {"content": {
        "application/json": {"schema": of(size=NUMBER)}}}}}  # fmt: skip
    whole = {
        "openapi": "3.0.0",
        "info": {"title": "Shop"},
        "paths": {"/a/{id}": {"get": operation}},
    }
    text = yaml.safe_dump(whole, sort_keys=False).replace("required: false", f"required: {no}")
    (tmp_path / "spec.yaml").write_text(text)
    assert "lang" not in describe(OpenApi(tmp_path / "spec.yaml")).code.split("returns=")[0]


def broken(value, draw):
    """A copy of a document in which a few values are gone or of another kind."""
    if draw.random() < 0.01:
        return draw.choice([None, "x", 7, [], {}, True, ["a"], {"$ref": "#/paths"}])
    if isinstance(value, dict):
        return {key: broken(part, draw) for key, part in value.items() if draw.random() > 0.01}
    return [broken(part, draw) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 400), marks=pytest.mark.proof)]
)
def test_a_broken_document_gives_one_sentence_or_a_declaration(tmp_path, seeds):
    wholes = {path: yaml.safe_load(path.read_text()) for path in sorted(DOCUMENTS.iterdir())}
    made = 0
    for seed in seeds:
        for name, whole in wholes.items():
            chosen = "label_v1_label_post" if name.stem == "classifier" else None
            path = tmp_path / "spec.json"
            path.write_text(json.dumps(broken(whole, random.Random(seed))))
            try:
                described = describe(OpenApi(path), chosen)
            except DeclarationError:
                continue
            try:
                exec(described.code, {})
            except DeclarationError as error:
                raise AssertionError(f"{seed}: {error}\n{described.code}") from None
            made += 1
    assert made > len(seeds)
