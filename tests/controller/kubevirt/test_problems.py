"""The text of a problem, after the texts of the present status (R11, P17)."""

import pytest

from controller.kubevirt.problems import Problem

POOR, RICH = 'Back-off pulling image "x:v2"', 'failed to pull "x:v2": not found'
NEWER = 'Back-off pulling image "x:v2": ErrImagePull: not found'
IMAGE, NODES, CRASH = "ImagePullBackOff", "ErrorUnschedulable", "CrashLoopBackOff"

TEXTS = {
    "a number in KubeVirt's message changes": (NODES, "0/5 nodes", f"web-0: {NODES}, 0/6 nodes", "0/6 nodes"),
    "our own number changes": (CRASH, "3 failed starts", f"web-0: {CRASH}, 2 failed starts", "3 failed starts"),
    "another state": (NODES, "0/5 nodes", "web-0: ErrorPvcNotFound, no PVC", "0/5 nodes"),
    "the kubelet waits after the error": (IMAGE, POOR, f"web-0: {IMAGE}, {RICH}", RICH),
    "another VM tells the error": (IMAGE, POOR, f"web-1: {IMAGE}, {RICH}", RICH),
    "the error comes later": (IMAGE, RICH, f"web-0: {IMAGE}, {POOR}", RICH),
    "a newer kubelet tells the error always": (IMAGE, NEWER, f"web-0: {IMAGE}, {POOR}", NEWER),
    "no VM has the full error": (IMAGE, POOR, f"web-0: {IMAGE}, {POOR}", POOR),
}


@pytest.mark.parametrize(("state", "detail", "earlier", "expected"), TEXTS.values(), ids=TEXTS)
def test_a_text_stays_until_it_tells_more(state, detail, earlier, expected):
    assert Problem("web-0", state, detail).after([earlier]).text == f"web-0: {state}, {expected}"
