"""The configuration of the program, from flags and environment variables. It cannot change after the start."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec
from msgspec import Struct, defstruct, structs

from controller.config.modes import Mode
from controller.config.options import Listed, Option, Switch, chosen
from controller.config.types import (
    ADDRESS,
    ANY_NAMESPACE,
    FILE,
    GROUP,
    NAMESPACE,
    OBJECT_NAME,
    Address,
    Integer,
    OneOf,
    duration,
    show_duration,
)
from controller.kinds import KINDS, Kind
from informers.resource import Resource

ALL_NAMESPACES = ("",)
"""A tuple with only the empty namespace. In a request to the API server the empty namespace means all namespaces."""

RETRY_JITTER = 1.2
"""The largest random factor for the pause between two renewals, as in client-go, so that processes diverge."""


class Connection(Struct, frozen=True, kw_only=True):
    kubeconfig: str = ""
    context: str = ""


if TYPE_CHECKING:

    class KindGroups(Connection, frozen=True, kw_only=True):
        """The API groups of the kinds. Each kind has one field: `replicaset_group`, `pool_group`."""
else:
    GROUP_FIELDS = [(kind.group_setting, str, kind.group) for kind in KINDS]
    KindGroups = defstruct("KindGroups", GROUP_FIELDS, bases=(Connection,), frozen=True, kw_only=True)


class Config(KindGroups, frozen=True, kw_only=True):
    """All settings, with their defaults. The help texts in `GROUPS` describe each field."""

    max_inflight: int = 50

    mode: str = Mode.AUTO.value
    second_writer_check: bool = True
    kubevirt_namespace: str = ""
    observe: bool = False
    revision_history: int = 5
    disruption_budgets: bool = False
    migrations: bool = False
    watch_namespaces: tuple[str, ...] = ()
    workers: int = 10
    burst: int = 250
    max_replicas: int = 10_000
    sync_timeout_s: float = 120.0
    shutdown_grace_s: float = 20.0

    leader_elect: bool = True
    leader_election_id: str = "vmherd"
    leader_election_namespace: str = ""
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0

    metrics_bind_address: Address | None = Address("", 8080)
    metrics_secure: bool = False
    metrics_cert_file: str = ""
    metrics_key_file: str = ""
    health_probe_bind_address: Address | None = Address("", 8081)
    object_metrics: bool = True
    debug_endpoints: bool = False

    log_level: str = "info"
    log_format: str = "auto"

    versions: Mapping[str, str] = {}
    """The served version, by the name of the kind, for kinds with several versions. No flag sets this field."""

    in_pod: bool = False
    """True if this process runs in a Pod of a cluster. No flag sets this field."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        return self.watch_namespaces or ALL_NAMESPACES

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self.group_of(kind) for kind in KINDS)

    def group_of(self, kind: Kind[Any]) -> str:
        group: str = getattr(self, kind.group_setting)
        return group

    def resource_of(self, kind: Kind[Any]) -> Resource[Any]:
        return kind.resource(self.group_of(kind), self.versions.get(kind.name, ""))

    @property
    def elects(self) -> bool:
        """True if the process must hold the lease before it works. With `observe` it writes nothing, so needs none."""
        return self.leader_elect and not self.observe


DEFAULTS = Config()

PUBLISHED = (
    *("mode", "burst", "max_replicas", "revision_history", "disruption_budgets", "migrations"),
    *(kind.group_setting for kind in KINDS),
)
"""The settings that plans depend on. The leader publishes them, so that the plugin makes the same plans."""


def published(config: Config) -> str:
    return msgspec.json.encode({name: getattr(config, name) for name in PUBLISHED}).decode()


def read_published(text: str) -> Config | None:
    """Return the settings that a leader has published, or None if this version cannot read them."""
    try:
        values = msgspec.json.decode(text)
        return msgspec.convert({name: values[name] for name in PUBLISHED}, Config)
    except (ValueError, KeyError, TypeError):  # msgspec's errors are ValueErrors
        return None


def _option(field: str, type: click.ParamType[Any], help: str, unset: str = "") -> Option:
    return Option(field, type, help, default=getattr(DEFAULTS, field), unset=unset)


def _switch(field: str, help: str) -> Switch:
    return Switch(field, help, default=getattr(DEFAULTS, field))


GROUPS: Mapping[str, tuple[Option, ...]] = {
    "The cluster": (
        _option(
            "kubeconfig",
            FILE,
            "how to reach the cluster",
            unset="$KUBECONFIG, else the Pod's service account, else ~/.kube/config",
        ),
        _option("context", click.STRING, "the context of the kubeconfig to use", unset="its current context"),
        _option(
            "max_inflight",
            Integer(1, 10_000),
            "writes that may wait for the API server at the same time; reads, watches and the lease do not count",
        ),
    ),
    "Who reconciles what": (
        _option(
            "mode",
            OneOf(*(mode.value for mode in Mode)),
            "standalone reconciles KubeVirt's groups if no other controller does; takeover reconciles them in place "
            "of a KubeVirt whose two loops are stopped; alongside leaves KubeVirt as it is and has its own groups; "
            "auto is alongside if KubeVirt is installed, and standalone otherwise",
        ),
        *(
            _option(
                kind.group_setting,
                GROUP,
                f"the API group of the {kind.kind}s to reconcile",
                unset=f"follows from the mode: {kind.group}, or {kind.own_group} with alongside",
            )
            for kind in KINDS
        ),
        _switch(
            "second_writer_check",
            "do not start while KubeVirt's virt-controller works on the same kinds, or if that cannot be checked",
        ),
        _option(
            "kubevirt_namespace",
            ANY_NAMESPACE,
            "the namespace of KubeVirt, for that check; if it is set, a Role in that namespace is enough",
            unset="any",
        ),
        _switch("observe", "write nothing: plan, and show planned actions in logs and metrics; needs no lease"),
    ),
    "The work": (
        Listed("watch_namespaces", "the namespaces to work in; can be repeated"),
        _option("workers", Integer(1, 1_000), "objects of one kind that are reconciled at the same time"),
        _option(
            "burst", Integer(1, 100_000), "creates, and deletes, that one reconciliation of an object sends at most"
        ),
        _option(
            "max_replicas",
            Integer(0, 1_000_000),
            "the maximum number of replicas of one object; limits spec.replicas; 0 means no limit",
        ),
        _option(
            "revision_history",
            Integer(0, 1_000),
            "old templates that a set or pool keeps as ControllerRevisions, in addition to those in use",
        ),
        _switch(
            "disruption_budgets",
            "keep a PodDisruptionBudget for each object with the annotation vmherd.dev/disruption-budget; needs "
            "permission to watch and write them",
        ),
        _switch(
            "migrations",
            "start the live migrations that pools with the annotation vmherd.dev/migrate need; needs permission to "
            "watch, create and delete them",
        ),
        _option(
            "sync_timeout_s",
            duration(least_s=1),
            "how long the first lists may take at the start; after that the start has failed",
        ),
        _option("shutdown_grace_s", duration(), "how long running reconciliations may continue after SIGTERM"),
    ),
    "Leader election": (
        _switch("leader_elect", "work only while holding the lease, so that several replicas can run"),
        _option("leader_election_id", OBJECT_NAME, "the name of the lease"),
        _option(
            "leader_election_namespace",
            NAMESPACE,
            "the namespace of the lease",
            unset="the namespace of the Pod; outside a cluster that of the existing lease, or default",
        ),
        _option(
            "lease_duration_s",
            duration(least_s=1, whole=True),
            "how long standbys wait after the last renewal of the lease before they take over",
        ),
        _option("renew_deadline_s", duration(least_s=0.1), "how long a leader tries to renew before it stops"),
        _option("retry_period_s", duration(least_s=0.1), "how often a leader renews the lease, and a standby reads it"),
    ),
    "The HTTP servers": (
        _option("metrics_bind_address", ADDRESS, "the address of /metrics; 0 disables it"),
        _switch(
            "metrics_secure", "serve /metrics over HTTPS, and only to users that RBAC allows to get this nonResourceURL"
        ),
        _option(
            "metrics_cert_file",
            FILE,
            "the certificate for HTTPS, as PEM; read again when it changes",
            unset="a self-signed certificate, made at the start",
        ),
        _option("metrics_key_file", FILE, "the key of the certificate, as PEM", unset="made with the certificate"),
        _option("health_probe_bind_address", ADDRESS, "the address of /healthz and /readyz; 0 disables them"),
        _switch("object_metrics", "replica gauges for each object; turn them off for a very large fleet"),
        _switch("debug_endpoints", "serve /debug/ as well: tasks, queues, caches, memory, a profile, the log level"),
    ),
    "Logs": (
        _option("log_level", OneOf("debug", "info", "warning", "error"), "the least important lines to write"),
        _option("log_format", OneOf("auto", "json", "console"), "auto is console on a terminal, and JSON otherwise"),
    ),
}
OPTIONS: Mapping[str, Option] = {option.name: option for group in GROUPS.values() for option in group}

MUST_EXCEED = (
    # A leader must stop before another process may take the lease. It tries to renew at least twice before it stops.
    ("lease_duration_s", "renew_deadline_s", 1.0),
    ("renew_deadline_s", "retry_period_s", RETRY_JITTER),
)
"""In each rule, the first duration must be longer than the second duration times the factor."""


def make_config(ctx: click.Context, *, pod_namespace: str = "") -> Config:
    """Raise click.BadParameter if two settings contradict each other. `pod_namespace` is that of the lease, or ""."""
    settings = chosen(ctx)
    settings.setdefault("leader_election_namespace", pod_namespace)
    config = structs.replace(DEFAULTS, **with_groups(settings), in_pod=bool(pod_namespace))
    if config.elects:
        _check_durations(config, ctx)
    _check_addresses(config, ctx)
    _check_certificate(config, ctx)
    return config


def with_groups(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chosen settings with the mode and the API groups of all kinds. The mode determines a group.

    If the user has chosen a group, `auto` becomes standalone. This is safe even if KubeVirt is installed: as long as
    KubeVirt reconciles the same objects, vmherd writes nothing.
    """
    named = chosen.keys() & {kind.group_setting for kind in KINDS}
    mode = str(chosen.get("mode", Mode.AUTO))
    if mode == Mode.AUTO and named:
        mode = Mode.STANDALONE.value
    return {**groups_in(mode), **chosen, "mode": mode}


def groups_in(mode: str) -> dict[str, str]:
    """Return the API group of each kind in a mode. The keys are the names of the settings, for example `pool_group`."""
    return {kind.group_setting: kind.own_group if mode == Mode.ALONGSIDE else kind.group for kind in KINDS}


def shared_with_kubevirt(config: Config) -> tuple[Kind[Any], ...]:
    return tuple(kind for kind in KINDS if kind.loop_flag and config.group_of(kind) == kind.group)


def _check_durations(config: Config, ctx: click.Context) -> None:
    for longer, shorter, factor in MUST_EXCEED:
        longer_s, shorter_s = getattr(config, longer), getattr(config, shorter)
        if longer_s <= shorter_s * factor:
            least = f"{OPTIONS[shorter].flag} ({show_duration(shorter_s)})"
            _refuse(
                ctx,
                longer if longer in chosen(ctx) else shorter,
                f"{OPTIONS[longer].flag} ({show_duration(longer_s)}) has to be longer than "
                f"{least if factor == 1 else f'{factor:g} times {least}'}",
            )


def _check_addresses(config: Config, ctx: click.Context) -> None:
    metrics, health = config.metrics_bind_address, config.health_probe_bind_address
    if metrics is None or health is None or metrics.port != health.port or metrics.port == 0:
        return
    if metrics.host == health.host or not metrics.host or not health.host:
        field = min(chosen(ctx).keys() & {"health_probe_bind_address", "metrics_bind_address"})
        _refuse(ctx, field, f"port {metrics.port} is used twice; metrics and probes have separate servers")


def _check_certificate(config: Config, ctx: click.Context) -> None:
    files = {"metrics_cert_file": config.metrics_cert_file, "metrics_key_file": config.metrics_key_file}
    given = [field for field, path in files.items() if path]
    if given and not config.metrics_secure:
        _refuse(ctx, given[0], "needs --metrics-secure as well, because only HTTPS needs a certificate")
    if len(given) == 1:
        [missing] = files.keys() - given
        _refuse(ctx, given[0], f"needs {OPTIONS[missing].flag} as well: a certificate and its key belong together")


def _refuse(ctx: click.Context, field: str, message: str) -> NoReturn:
    raise click.BadParameter(message, ctx=ctx, param=OPTIONS[field])
