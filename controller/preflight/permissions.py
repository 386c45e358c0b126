"""The permissions that the controller needs, and the `optional_permissions`. The roles have exactly both."""

from collections.abc import Iterable
from functools import partial

from controller.access import Permission
from controller.config.modes import Mode
from controller.config.settings import Config, shared_with_kubevirt
from controller.kinds import BUDGETS, KINDS, MIGRATIONS, READ, Access, accesses
from controller.kubevirt.resources import KUBEVIRT_GROUP


def permissions_needed(config: Config) -> tuple[Permission, ...]:
    if config.observe:
        return tuple(_reads(config)) + check_permissions(config) + scrape_permissions(config)
    owners = [(config.group_of(kind), kind) for kind in KINDS]
    everywhere = [
        *(permission for group, kind in owners for permission in _owner_permissions(group, kind.plural)),
        *((group, kind.plural, "", verb) for group, kind in owners for verb in kind.owner_verbs),
        *(
            (each.resource.group, each.resource.plural, each.subresource, verb)
            for each in _accesses(config)
            for verb in each.verbs
        ),
        *(("", "events", "", verb) for verb in ("create", "patch")),
    ]
    work = tuple(
        Permission(group=group, resource=resource, subresource=subresource, verb=verb, namespace=namespace)
        for namespace in config.namespaces
        for group, resource, subresource, verb in everywhere
    )
    lease = _lease_permissions(config) if config.leader_elect else ()
    return work + check_permissions(config) + scrape_permissions(config) + lease


def _accesses(config: Config) -> tuple[Access, ...]:
    optional = ((BUDGETS, config.disruption_budgets), (MIGRATIONS, config.migrations))
    return (*accesses(), *(each for each, is_on in optional if is_on))


def _reads(config: Config) -> Iterable[Permission]:
    """Yield the permissions to list and watch the cached kinds: all that `--observe` needs for objects."""
    kinds = [(config.group_of(kind), kind.plural) for kind in KINDS]
    kinds += [(each.resource.group, each.resource.plural) for each in _accesses(config) if each.is_cached]
    for namespace in config.namespaces:
        for group, resource in kinds:
            yield from (Permission(group, resource, verb, namespace) for verb in ("list", "watch"))


def check_permissions(config: Config) -> tuple[Permission, ...]:
    """Return the permissions to check whether KubeVirt's own loops are stopped, for the mode `takeover`."""
    if config.mode != Mode.TAKEOVER or not config.second_writer_check or not shared_with_kubevirt(config):
        return ()
    namespace = config.kubevirt_namespace
    return (
        Permission(KUBEVIRT_GROUP, "kubevirts", "list", namespace),
        Permission("apps", "deployments", "get", namespace, name="virt-controller"),
    )


def optional_permissions(config: Config) -> tuple[Permission, ...]:
    """Return those to read KubeVirt's strategy, which with watched namespaces need the namespace of KubeVirt."""
    is_limited = bool(config.watch_namespaces) and not config.kubevirt_namespace
    if is_limited or check_permissions(config):
        return ()
    return (Permission(KUBEVIRT_GROUP, "kubevirts", "list", config.kubevirt_namespace),)


def scrape_permissions(config: Config) -> tuple[Permission, ...]:
    """Return the permissions to check the readers of the metrics, which only a ClusterRole can grant."""
    if not config.metrics_secure:
        return ()
    return (
        Permission("authentication.k8s.io", "tokenreviews", "create"),
        Permission("authorization.k8s.io", "subjectaccessreviews", "create"),
    )


def _owner_permissions(group: str, plural: str) -> Iterable[tuple[str, str, str, str]]:
    yield from ((group, plural, "", verb) for verb in READ)
    yield group, plural, "status", "patch"
    # If OwnerReferencesPermissionEnforcement is enabled, only users with this permission may set blockOwnerDeletion.
    yield group, plural, "finalizers", "update"


def _lease_permissions(config: Config) -> tuple[Permission, ...]:
    # RBAC cannot limit the verb create to one name, because the path of a create request contains no name.
    names = {"create": "", "get": config.leader_election_id, "patch": config.leader_election_id}
    lease = partial(Permission, "coordination.k8s.io", "leases", namespace=config.leader_election_namespace)
    return tuple(lease(verb, name=name) for verb, name in names.items())
