"""Events about settings of a valid pool that have no effect or an unexpected effect."""

from __future__ import annotations

from controller.apimachinery.label_selectors import Selector
from controller.pool.spec.intent import Intent
from controller.runtime.actions import Notice, Plan


def plan_advice(intent: Intent) -> Plan:
    """Return a plan that writes nothing and only sends Events. Each Event is sent once."""
    return Plan(notices=(*_ignored_fields(intent), *_unmatched_pods(intent)))


def _ignored_fields(intent: Intent) -> tuple[Notice, ...]:
    """Return an Event for each `basePolicy` that is ignored, because `sortPolicy` has another value (P8)."""
    found = dict.fromkeys((intent.scale_in.selection.ignored, intent.update.selection.ignored))
    return tuple(Notice(reason="FieldIgnored", message=message, once=message) for message in found if message)


def _unmatched_pods(intent: Intent) -> tuple[Notice, ...]:
    """Return an Event if the pool's selector matches no Pod of the pool.

    An autoscaler finds Pods by the pool's selector. But a Pod has the labels of the VMI template, not of the VM.
    """
    labels = intent.template.machine_labels
    if intent.selector.matches(labels):
        return ()
    missing = [
        str(Selector(equalities=(each,))) for each in intent.selector.equalities if labels.get(each[0]) != each[1]
    ]
    missing += [str(each) for each in intent.selector.requirements if not each.accepts(labels)]
    message = (
        f"an autoscaler of this pool finds no Pod: {', '.join(missing)} of spec.selector does not match "
        "spec.virtualMachineTemplate.spec.template.metadata.labels"
    )
    return (Notice(reason="SelectorMatchesNoPod", message=message, once=message),)
