"""A contract for import-linter that its own kinds lack: a package may import only what is listed."""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class AllowListContract(Contract):
    """Modules below `source_module` import only `allowed_modules`, themselves and the standard library.

    `about` narrows the rule to imports from one package. Tests are free: they check both sides of a border.
    """

    type_name = "allow_list"

    source_module = fields.StringField()
    allowed_modules = fields.ListField(subfield=fields.StringField(), required=False)
    about = fields.StringField(required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find the imports that no entry allows."""
        source, about = str(self.source_module), self.about
        allowed = [source, *(self.allowed_modules or [])]  # type: ignore[misc]  # fields are descriptors
        illegal = []
        for importer in sorted(module for module in graph.modules if _is_within(module, source)):
            if ".tests" in importer:
                continue
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                judged = _is_within(imported, str(about)) if about else imported not in sys.stdlib_module_names
                if judged and not any(_is_within(imported, name) for name in allowed):
                    illegal.append((importer, imported))
        return ContractCheck(kept=not illegal, metadata={"illegal": illegal})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import that is not allowed."""
        for importer, imported in check.metadata["illegal"]:
            output.print_error(f"{importer} may not import {imported}")


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
