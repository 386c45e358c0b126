"""The namespace of a case about replica sets."""

from collections.abc import Mapping
from typing import Final

from conformance.case import Document
from conformance.namespace import CaseNamespace
from conformance.templates import vmi_template

NAME: Final = "herd"
LABELS: Final = {"app": NAME}
ENDED: Final = ("Succeeded", "Failed")


class ReplicaSets(CaseNamespace):
    name, template_field, member = NAME, "template", "VMI"

    def template(self, *, running: bool = True, annotations: Mapping[str, str] | None = None) -> Document:
        """Return a template of VMIs. A VMI always starts, whatever `running` is."""
        return vmi_template(self.conditions.image, LABELS, annotations=annotations)

    def vmi_spec_in(self, template: Document) -> Document:
        spec: Document = template["spec"]
        return spec

    def has_active(self, document: Document, name: str = "") -> bool:
        phase = (document.get("status") or {}).get("phase", "")
        return super().has_active(document, name) and phase not in ENDED
