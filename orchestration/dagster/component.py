"""An enrichment as a Dagster component in `defs.yaml`, with the declaration's fields."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import dagster as dg
import pydantic
import yaml  # type: ignore[import-untyped]

from jobs.declare import enrichment
from jobs.declare.finding.discovery import Discovered
from jobs.declare.finding.loading import from_yaml
from jobs.errors import DeclarationError
from orchestration.dagster.declared import declared_together
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.resources import spark_program

FILE = "defs.yaml"
SCAFFOLDED = {
    "input": {"path": "data/raw/orders", "row_id": ["order_id"]},
    "lookups": [
        {
            "name": "rating",
            "http": {
                "service": {"name": "credit", "url": {"env": "CREDIT_URL"}, "max_concurrency": 20},
                "request": "GET /customers/{customer}/rating",
                "keys": {"customer": "customer_id"},
                "returns": "score INT, grade STRING",
                "timeout": "5s",
            },
        }
    ],
}


def _attributes() -> type[pydantic.BaseModel]:
    """Return a model of the fields' names; `Enrichment` itself checks their values."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(enrichment.Enrichment):
        if field.init:
            required = (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            )
            fields[field.name] = (Any, ... if required else None)
    config = pydantic.ConfigDict(extra="forbid")
    model: type[pydantic.BaseModel] = pydantic.create_model(
        "EnrichmentAttributes", __config__=config, **fields
    )
    return model


class EnrichmentScaffolder(dg.Scaffolder[pydantic.BaseModel]):
    """Writes a `defs.yaml` to begin with."""

    def scaffold(self, request: dg.ScaffoldRequest[pydantic.BaseModel]) -> None:
        name = request.target_path.name
        attributes = {"name": name, **SCAFFOLDED, "output": {"path": f"data/published/{name}"}}
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(EnrichmentScaffolder)
class Enrichment(dg.Component):
    """A table that is enriched every night: its assets, checks, job and schedule."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @classmethod
    def get_model_cls(cls) -> type[pydantic.BaseModel]:
        return _attributes()

    @classmethod
    def load(
        cls,
        attributes: pydantic.BaseModel | None,  # noqa: ARG003
        context: dg.ComponentLoadContext,
    ) -> "Enrichment":
        # the Spark program reads the attributes from the file, so they are read from there
        file = Path(os.path.relpath(context.path / FILE))
        from_yaml(file)  # its errors name this file
        # the definitions that come with a file are not those of its table
        if "post_processing" in yaml.safe_load(file.read_text(encoding="utf-8")):
            raise DeclarationError(
                f"{file}: post_processing cannot be used: the definitions of all tables come with "
                "the first file. Write definitions_for in Python, and change what it returns."
            )
        return cls(file)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions of all enrichments for the first file, because they share alerts
        and jobs.
        """
        files = sorted(
            component.file for component in context.component_tree.get_all_components(Enrichment)
        )
        if self.file != files[0]:
            return dg.Definitions()
        found = [Discovered(f"{file}:attributes", from_yaml(file)) for file in files]
        return build_definitions(declared_together(found), spark_program())
