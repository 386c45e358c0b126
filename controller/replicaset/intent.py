"""The parser for the spec and the settings of a replica set (R1)."""

from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.label_selectors import Selector
from controller.apimachinery.quantities import Amount, parse_amount
from controller.kubevirt.annotations import ROLLING_UPDATE
from controller.kubevirt.limits import check_spec
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.replicas.settings import Settings, read_settings
from controller.replicas.wrong_annotations import setting
from controller.replicaset.template import FIELD, Template, parse_template
from informers.meta import ObjectMeta, annotations_of


class Rollout(Struct, frozen=True):
    """The limits of a rolling update. One of them is not 0, unless the set wants no VMI."""

    max_unavailable: int
    max_surge: int


class RollingUpdate(Struct, frozen=True):
    """The annotation `ROLLING_UPDATE` (R14). With a surge, percentages are rounded as in a Deployment."""

    unavailable: Amount | None
    surge: Amount | None

    def at(self, wanted: int) -> Rollout:
        if self.surge is None:
            assert self.unavailable is not None, "the catalogue refuses two limits of 0"
            return Rollout(self.unavailable.of(wanted), 0)
        unavailable = self.unavailable.floor(wanted) if self.unavailable is not None else 0
        return Rollout(unavailable, self.surge.ceiling(wanted))


class Intent(Struct, frozen=True, kw_only=True):
    """A valid spec, with the settings. The selector is not empty and matches the template's labels.

    `rolling` is None if the annotation is absent or invalid. `rolls_out` is true if it is present.
    """

    replicas: int
    selector: Selector
    template: Template
    settings: Settings
    rolling: RollingUpdate | None
    rolls_out: bool

    @property
    def most_unavailable(self) -> int | None:
        """The number of VMIs that a rolling update may make unavailable at the same time, or None."""
        return self.rolling.at(self.replicas).max_unavailable if self.rolling is not None else None

    def limits_at(self, wanted: int) -> Rollout | None:
        return self.rolling.at(wanted) if self.rolling is not None else None


def parse_intent(owner: ReplicaSet) -> Intent | FieldError:
    checked = check_spec(owner.spec, parse_template(owner), FIELD)
    if isinstance(checked, FieldError):
        return checked
    replicas, selector, template = checked
    return Intent(
        replicas=replicas,
        selector=selector,
        template=template,
        settings=read_settings(owner.metadata),
        rolling=parse_rolling(owner.metadata),
        rolls_out=ROLLING_UPDATE in annotations_of(owner.metadata),
    )


def parse_rolling(meta: ObjectMeta) -> RollingUpdate | None:
    text = setting(meta, ROLLING_UPDATE)
    if text is None:
        return None
    parts = (part.partition("=") for part in text.split(","))
    amounts = {name.strip(): parse_amount(value.strip()) for name, _, value in parts}
    return RollingUpdate(amounts["maxUnavailable"], amounts.get("maxSurge"))
