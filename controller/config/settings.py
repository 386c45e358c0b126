"""The configuration: one frozen value, made once from flags and environment, before anything else happens.

`OPTIONS` is the only list of settings: the flags, the variables and `--help` come from it. Whatever cannot be right
stops the start with a `UsageError`: one line that says what is wrong, where it was said, and what would be right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, defstruct, structs

from controller.config.flags import Setting, UsageError, read_settings
from controller.config.modes import Mode
from controller.config.options import (
    ADDRESS,
    ANY_NAMESPACE,
    GROUP,
    NAMESPACE,
    NAMESPACES,
    OBJECT_NAME,
    PATH,
    RATE,
    SWITCH,
    TEXT,
    Address,
    Option,
    duration,
    one_of,
    show_duration,
    whole_number,
)
from controller.kinds import KINDS, Kind

COMMAND = "vmherd run"

ALL_NAMESPACES = ("",)
"""How the API spells "in every namespace"."""

RETRY_JITTER = 1.2
"""A try to renew the lease can come this much later than planned, and must still be in time (client-go's factor)."""


if TYPE_CHECKING:

    class KindGroups(Struct, frozen=True, kw_only=True):
        """The API group of each kind, as a field for each: `replicaset_group`, `pool_group`."""
else:
    KindGroups = defstruct(
        "KindGroups", [(kind.group_setting, str, kind.group) for kind in KINDS], frozen=True, kw_only=True
    )


class Config(KindGroups, frozen=True, kw_only=True):
    """Everything that can be set. `OPTIONS` says what each field means; the defaults are here."""

    kubeconfig: str = ""
    context: str = ""
    kube_api_qps: float = 0.0
    kube_api_burst: int = 0
    max_inflight: int = 50

    mode: str = Mode.AUTO.value
    second_writer_check: bool = True
    kubevirt_namespace: str = ""
    observe: bool = False
    revision_history: int = 5
    watch_namespaces: tuple[str, ...] = ()
    workers: int = 10
    burst: int = 250
    resync_period_s: float = 0.0
    sync_timeout_s: float = 120.0
    shutdown_grace_s: float = 20.0

    leader_elect: bool = True
    leader_election_id: str = "vmherd"
    leader_election_namespace: str = "default"
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

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces to watch, each by a watch of its own; `ALL_NAMESPACES` is one that covers them all."""
        return self.watch_namespaces or ALL_NAMESPACES

    @property
    def groups(self) -> tuple[str, ...]:
        """The API groups of all kinds, in the order of `KINDS`."""
        return tuple(self.group_of(kind) for kind in KINDS)

    def group_of(self, kind: Kind[Any]) -> str:
        """The API group of the kind's objects that are reconciled."""
        group: str = getattr(self, kind.group_setting)
        return group

    @property
    def elects(self) -> bool:
        """Whether a lease is needed before work begins. Whoever only looks on disturbs nobody, and needs none."""
        return self.leader_elect and not self.observe

    @property
    def request_burst(self) -> int:
        """The size of the request bucket: as set, else twice the rate, so that a pass need not trickle."""
        return self.kube_api_burst or max(1, round(2 * self.kube_api_qps))


GROUPS: Mapping[str, tuple[Option, ...]] = {
    "the cluster": (
        Option(
            "kubeconfig",
            PATH,
            "how to reach the cluster",
            unset="$KUBECONFIG, else the Pod's service account, else ~/.kube/config",
        ),
        Option("context", TEXT, "which context of the kubeconfig to use", unset="its current one"),
        Option(
            "max_inflight",
            whole_number(least=1, most=10_000),
            "requests that may wait for the API server at the same time; watches and the lease do not count",
        ),
        Option(
            "kube_api_qps", RATE, "requests a second; 0 sets no limit and leaves it to the API server to protect itself"
        ),
        Option(
            "kube_api_burst",
            whole_number(least=0, most=100_000),
            "requests that may go at once before --kube-api-qps holds them back",
            unset="twice --kube-api-qps",
        ),
    ),
    "who reconciles what": (
        Option(
            "mode",
            one_of(*Mode),
            "standalone reconciles KubeVirt's groups, where nobody else does; takeover does so in the place of a "
            "KubeVirt whose own loops rest; alongside leaves KubeVirt as it is, and has groups of its own; auto is "
            "standalone where there is no KubeVirt, and alongside where there is one",
        ),
        *(
            Option(
                kind.group_setting,
                GROUP,
                f"the API group of the {kind.kind}s to reconcile",
                unset=f"as the mode has it: {kind.group}, or {kind.own_group} alongside",
            )
            for kind in KINDS
        ),
        Option(
            "second_writer_check",
            SWITCH,
            "do not start while KubeVirt's virt-controller works on the same kinds, or while that cannot be told",
        ),
        Option(
            "kubevirt_namespace",
            ANY_NAMESPACE,
            "the namespace of KubeVirt, for that check; with it, a Role there is enough",
            unset="wherever it is",
        ),
        Option(
            "observe", SWITCH, "write nothing at all: plan, and tell in logs and metrics what would be done; no lease"
        ),
    ),
    "the work": (
        Option("watch_namespaces", NAMESPACES, "the namespaces to work in; may be given again for more", unset="all"),
        Option(
            "workers", whole_number(least=1, most=1_000), "objects of one kind that are reconciled at the same time"
        ),
        Option(
            "burst",
            whole_number(least=1, most=100_000),
            "creates, and deletes, that one pass over an object sends at most",
        ),
        Option(
            "revision_history",
            whole_number(least=0, most=1_000),
            "templates that a pool keeps as ControllerRevisions to go back to, beside those in use",
        ),
        Option(
            "resync_period_s", duration(), "look at every object again this often, though nothing changed; 0 is never"
        ),
        Option(
            "sync_timeout_s",
            duration(least_s=1),
            "how long the first lists may take at start before that counts as a failure",
        ),
        Option("shutdown_grace_s", duration(), "how long work in hand may go on after SIGTERM"),
    ),
    "leader election": (
        Option("leader_elect", SWITCH, "work only while holding the lease, so that several replicas can run"),
        Option("leader_election_id", OBJECT_NAME, "the name of the lease"),
        Option(
            "leader_election_namespace",
            NAMESPACE,
            "the namespace of the lease",
            unset="the Pod's own; default outside a cluster",
        ),
        Option(
            "lease_duration_s",
            duration(least_s=1, whole=True),
            "how long a lease that is not renewed keeps standbys out",
        ),
        Option("renew_deadline_s", duration(least_s=0.1), "how long a leader tries to renew before it stops"),
        Option("retry_period_s", duration(least_s=0.1), "how often a leader renews and a standby looks"),
    ),
    "the HTTP servers": (
        Option("metrics_bind_address", ADDRESS, "where /metrics is served; 0 serves none"),
        Option(
            "metrics_secure",
            SWITCH,
            "serve /metrics over HTTPS, and only to those whom the API server allows to get that nonResourceURL",
        ),
        Option(
            "metrics_cert_file",
            PATH,
            "the certificate for that, as PEM; read again when it changes",
            unset="one that nobody vouches for, made at the start",
        ),
        Option("metrics_key_file", PATH, "the certificate's key, as PEM", unset="made with the certificate"),
        Option("health_probe_bind_address", ADDRESS, "where /healthz and /readyz are served; 0 serves none"),
        Option("object_metrics", SWITCH, "replica gauges for each object; a large fleet may want to do without"),
        Option("debug_endpoints", SWITCH, "serve /debug/ as well: tasks, queues, stacks"),
    ),
    "logs": (
        Option("log_level", one_of("debug", "info", "warning", "error"), "the least important lines to write"),
        Option("log_format", one_of("auto", "json", "console"), "auto is console on a terminal and JSON elsewhere"),
    ),
}
OPTIONS: tuple[Option, ...] = tuple(option for group in GROUPS.values() for option in group)


class MustExceed(Struct, frozen=True):
    """One duration has to be longer than so many times another."""

    longer: str
    shorter: str
    factor: float = 1.0


ORDERED = (
    # A leader has to give up before others may take over, and has to have tried at least twice by then.
    MustExceed("lease_duration_s", "renew_deadline_s"),
    MustExceed("renew_deadline_s", "retry_period_s", RETRY_JITTER),
)


def parse(argv: Sequence[str], env: Mapping[str, str], *, pod_namespace: str = "") -> Config:
    """Make the configuration. `pod_namespace` is the Pod's own namespace, "" outside a cluster.

    Raises UsageError; `--help` prints and raises SystemExit(0).
    """
    defaults = Config()
    settings = read_settings(GROUPS, defaults, command=COMMAND, argv=argv, env=env)
    chosen = {field: setting.value for field, setting in settings.items()}
    chosen.setdefault("leader_election_namespace", pod_namespace or defaults.leader_election_namespace)
    config = structs.replace(defaults, **with_groups(chosen))
    if config.elects:
        _check_durations(config, settings)
    _check_addresses(config, settings)
    _check_certificate(config, settings)
    return config


def with_groups(chosen: Mapping[str, object]) -> dict[str, object]:
    """What was chosen, with the groups that follow from the mode. A group that was named wins over the mode.

    Where one was named, there is nothing left for `auto` to choose: it means standalone, and the check of a second
    writer guards it.
    """
    named = chosen.keys() & {kind.group_setting for kind in KINDS}
    mode = str(chosen.get("mode", Mode.AUTO))
    if mode == Mode.AUTO and named:
        mode = Mode.STANDALONE.value
    return {**groups_in(mode), **chosen, "mode": mode}


def groups_in(mode: str) -> dict[str, str]:
    """The groups of all kinds in a mode, by their settings."""
    return {kind.group_setting: kind.group_in(mode) for kind in KINDS}


def shared_with_kubevirt(config: Config) -> tuple[Kind[Any], ...]:
    """The kinds that KubeVirt's own loops would work on as well."""
    return tuple(kind for kind in KINDS if kind.loop_flag and config.group_of(kind) == kind.group)


def _check_durations(config: Config, settings: Mapping[str, Setting]) -> None:
    """Raise UsageError, and blame what somebody chose rather than a default."""
    options = {option.field: option for option in OPTIONS}
    for rule in ORDERED:
        longer_s, shorter_s = getattr(config, rule.longer), getattr(config, rule.shorter)
        if longer_s > shorter_s * rule.factor:
            continue
        if rule.longer in settings:
            where, limit = settings[rule.longer].where, f"more than {show_duration(round(shorter_s * rule.factor, 2))}"
            other, value_s = options[rule.shorter], shorter_s
        else:
            where, limit = settings[rule.shorter].where, f"less than {show_duration(round(longer_s / rule.factor, 2))}"
            other, value_s = options[rule.longer], longer_s
        raise UsageError(f"{where}: expected {limit}, because {other.flag} is {show_duration(value_s)}")


def _check_addresses(config: Config, settings: Mapping[str, Setting]) -> None:
    metrics, health = config.metrics_bind_address, config.health_probe_bind_address
    if metrics is None or health is None or metrics.port != health.port or metrics.port == 0:
        return
    if metrics.host == health.host or not metrics.host or not health.host:
        setting = settings.get("health_probe_bind_address") or settings["metrics_bind_address"]
        raise UsageError(f"{setting.where}: expected another port, because metrics and probes each have a server")


def _check_certificate(config: Config, settings: Mapping[str, Setting]) -> None:
    files = {"metrics_cert_file": config.metrics_cert_file, "metrics_key_file": config.metrics_key_file}
    given = [field for field, path in files.items() if path]
    if not given:
        return
    where = settings[given[0]].where
    if not config.metrics_secure:
        raise UsageError(f"{where}: expected --metrics-secure as well, because only HTTPS needs a certificate")
    if len(given) < len(files):
        missing = "--metrics-key-file" if config.metrics_cert_file else "--metrics-cert-file"
        raise UsageError(f"{where}: expected {missing} as well, because a certificate and its key go together")
