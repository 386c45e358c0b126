"""P23: of several wrong annotations, the most harmful one is told first."""

from controller.kubevirt.annotations import PARTITION, PROGRESS_DEADLINE, PROTECT, REPLACE_UNREADY_AFTER
from controller.replicas.catalogue import Place
from controller.replicas.wrong_annotations import wrong_on
from informers.meta import ObjectMeta


def test_p23_the_annotation_that_stops_the_rollout_is_told_before_harmless_ones():
    times = dict.fromkeys((PROGRESS_DEADLINE, REPLACE_UNREADY_AFTER, PARTITION), "1m")
    values = {**times, PROTECT: "true", "vmherd.dev/a": ""}
    told = [each.message.split()[1] for each in wrong_on(ObjectMeta(annotations=values), Place.POOL)]
    assert told == [PARTITION, REPLACE_UNREADY_AFTER, PROGRESS_DEADLINE, PROTECT, "vmherd.dev/a"]
    deadline = wrong_on(ObjectMeta(annotations={PROGRESS_DEADLINE: "1m"}), Place.POOL)[0].message
    assert deadline.endswith('is "1m": it must be plain seconds, such as 60, so it counts as 600')
