"""The JSON schema of the chart's values. The names and types come from `values.yaml`; further limits are defined here.

A name that is not in `values.yaml` is rejected. So a typo stops an installation.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from tools.chart.values import Default, Value

Schema: TypeAlias = dict[str, object]

DURATION: Schema = {"type": "string", "pattern": r"^(0|([0-9]+(\.[0-9]+)?(ms|us|s|m|h))+)$"}
WHOLE_SECONDS: Schema = {"type": "string", "pattern": r"^([0-9]+(s|m|h))+$"}
NAMESPACE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
STRING_MAP: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
COUNT: Schema = {"type": "integer", "minimum": 0}
POSITIVE: Schema = {"type": "integer", "minimum": 1}


PULL_SECRETS: Schema = {"type": "array", "items": {"type": ["object", "string"]}}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def pattern(expression: str) -> Schema:
    return {"type": "string", "pattern": expression}


ALERT: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "enabled": {"type": "boolean"},
        "threshold": {"type": "number", "minimum": 0},
        "for": pattern(r"^([0-9]+(ms|s|m|h|d))+$"),
        "severity": {"type": "string", "minLength": 1},
        "labels": STRING_MAP,
        "annotations": STRING_MAP,
    },
}

_QUANTITY: Schema = {
    "type": ["string", "number", "null"],
    "pattern": r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
}
_QUANTITIES: Schema = {"type": ["object", "null"], "additionalProperties": _QUANTITY}
RESOURCES: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"requests": _QUANTITIES, "limits": _QUANTITIES, "claims": OBJECTS},
}
"""The resources of a container. The value null removes a default."""

MONITOR: Mapping[str, Schema] = {
    "interval": pattern(r"^([0-9]+(ms|s|m|h))*$"),
    "scrapeTimeout": pattern(r"^([0-9]+(ms|s|m|h))*$"),
    "authorization": {"type": "object"},
    "relabelings": OBJECTS,
    "metricRelabelings": OBJECTS,
}

REFINED: Mapping[str, Schema] = {
    "metrics.prometheusRule.alerts": {"type": "object", "additionalProperties": ALERT},
    "metrics.prometheusRule.runbookUrl": pattern(r"^((https?://|\{\{).+)?$"),
    "mode": one_of("auto", "standalone", "takeover", "alongside"),
    "platform": one_of("auto", "kubernetes", "openshift"),
    "global.imagePullSecrets": PULL_SECRETS,
    "global.nodeSelector": STRING_MAP,
    "global.tolerations": OBJECTS,
    "secondWriterCheck.kubevirtNamespace": pattern(f"^({NAMESPACE})?$"),
    "watchNamespaces": {"type": "array", "items": pattern(f"^{NAMESPACE}$"), "uniqueItems": True},
    "image.repository": {"type": "string", "minLength": 1},
    "image.digest": pattern(r"^(sha256:[0-9a-f]{64})?$"),
    "image.pullPolicy": one_of("Always", "IfNotPresent", "Never"),
    "imagePullSecrets": PULL_SECRETS,
    "namespaceOverride": pattern(f"^({NAMESPACE})?$"),
    "replicaCount": COUNT,
    "leaderElection.leaseDuration": WHOLE_SECONDS,
    "leaderElection.renewDeadline": DURATION,
    "leaderElection.retryPeriod": DURATION,
    "settings.workers": POSITIVE,
    "settings.burst": POSITIVE,
    "settings.maxReplicas": COUNT,
    "settings.revisionHistory": COUNT,
    "settings.resyncPeriod": DURATION,
    "settings.syncTimeout": DURATION,
    "settings.shutdownGrace": DURATION,
    "settings.maxInflight": POSITIVE,
    "settings.kubeApiQps": {"type": "number", "minimum": 0},
    "settings.kubeApiBurst": COUNT,
    "logs.level": one_of("debug", "info", "warning", "error"),
    "logs.format": one_of("auto", "json", "console"),
    "extraArgs": {"type": "array", "items": {"type": "string"}},
    "extraEnv": OBJECTS,
    "extraEnvFrom": OBJECTS,
    "extraVolumes": OBJECTS,
    "extraVolumeMounts": OBJECTS,
    "extraContainers": OBJECTS,
    "extraInitContainers": OBJECTS,
    "extraObjects": OBJECTS,
    "rbac.userRoles": one_of("auto", "cluster", "namespaces", "none"),
    "healthPort": PORT,
    "terminationGracePeriodSeconds": COUNT,
    "revisionHistoryLimit": COUNT,
    "nodeSelector": STRING_MAP,
    "tolerations": OBJECTS,
    "topologySpreadConstraints": OBJECTS,
    "dnsPolicy": one_of("", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "hostAliases": OBJECTS,
    "podDisruptionBudget.maxUnavailable": {"oneOf": [COUNT, pattern("^[0-9]+%$")]},
    "podDisruptionBudget.minAvailable": {"oneOf": [COUNT, pattern("^([0-9]+%)?$")]},
    "hooks.backoffLimit": COUNT,
    "hooks.resources": RESOURCES,
    "resources": RESOURCES,
    "networkPolicy.metricsFrom": OBJECTS,
    "networkPolicy.apiServerPorts": {"type": "array", "items": PORT, "minItems": 1},
    "networkPolicy.apiServerTo": OBJECTS,
    "networkPolicy.extraEgress": OBJECTS,
    "networkPolicy.extraIngress": OBJECTS,
    "metrics.port": PORT,
    "metrics.service.ipFamilies": {"type": "array", "items": one_of("IPv4", "IPv6"), "uniqueItems": True},
    "metrics.service.ipFamilyPolicy": one_of("", "SingleStack", "PreferDualStack", "RequireDualStack"),
    **{f"metrics.serviceMonitor.{field}": schema for field, schema in MONITOR.items()},
    **{f"metrics.podMonitor.{field}": schema for field, schema in MONITOR.items()},
}
"""Schemas that allow less than the type of the default value. Every list needs such a schema, because an empty list has
no item type.
"""


class Unknown(ValueError):
    """`values.yaml` has no value of this name, or the type of the value's default is unknown. `str()` names the
    value.
    """


def document(values: Sequence[Value]) -> str:
    """Return the text of `values.schema.json`. Raises `Unknown` for a value without a known type."""
    if unknown := REFINED.keys() - {value.name for value in values}:
        raise Unknown(f"not in values.yaml: {', '.join(sorted(unknown))}")
    root: Schema = {"$schema": "http://json-schema.org/draft-07/schema#", **_section(values, depth=0)}
    properties = root["properties"]
    if isinstance(properties, dict):
        # Helm passes the global values of a parent chart to every subchart, also those of other charts.
        properties["global"] = {"type": "object", **_as_dict(properties.get("global")), "additionalProperties": True}
    return json.dumps(root, indent=2) + "\n"


def _as_dict(schema: object) -> Schema:
    return schema if isinstance(schema, dict) else {}


def _section(values: Iterable[Value], *, depth: int) -> Schema:
    grouped: dict[str, list[Value]] = {}
    for value in values:
        grouped.setdefault(value.path[depth], []).append(value)
    properties: dict[str, Schema] = {}
    for name, members in grouped.items():
        is_leaf = len(members[0].path) == depth + 1
        properties[name] = _leaf(members[0]) if is_leaf else _section(members, depth=depth + 1)
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _leaf(value: Value) -> Schema:
    return {"description": value.text, **(REFINED.get(value.name) or _type_of(value.name, value.default))}


def _type_of(name: str, default: Default) -> Schema:
    match default:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case str():
            return {"type": "string"}
        case dict():
            return STRING_MAP if name.lower().endswith(("labels", "annotations")) else {"type": "object"}
        case _:
            raise Unknown(f"{name}: the type of the default {default!r} is unknown: add the value to REFINED")
