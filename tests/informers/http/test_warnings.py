import asyncio
import json
from pathlib import Path

import pytest

from informers.http.client import load_credentials, open_client
from informers.http.warnings import LONGEST, MOST, collect, collected_warnings, rewritten_warnings
from sandbox.controlplane import ControlPlane
from tests.informers.faultserver import FaultServer, answer, client_of
from tests.informers.subjects import CONFIGMAPS

UNKNOWN = '299 - "unknown field \\"spec.tmeplate\\""'


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        (UNKNOWN, ['unknown field "spec.tmeplate"']),
        (
            f'{UNKNOWN}, 299 kube "a, b: \\\\ c" "Mon, 23 Nov 2026 22:00:00 GMT"',
            ['unknown field "spec.tmeplate"', "a, b: \\ c"],
        ),
        (f"{UNKNOWN}, {UNKNOWN}", ['unknown field "spec.tmeplate"']),
        (", ".join(f'299 - "{number}"' for number in range(MOST + 2)), [str(number) for number in range(MOST)]),
        (f'299 - "{"x" * 400}"', [f"{'x' * (LONGEST - 3)}..."]),
        (f'299 - "{"x" * (LONGEST - 7)} letmein"', [f"{'x' * (LONGEST - 7)}..."]),
        ('199 - "not for users"', []),
        ('299 - "no end', []),
        ("", []),
    ],
)
async def test_the_warnings_of_an_answer_are_collected(tmp_path: Path, header: str, texts: list[str]):
    async with client_of(FaultServer(answer(201, Warning=header)), tmp_path) as client:
        with collected_warnings() as found:
            async with asyncio.TaskGroup() as group:
                group.create_task(client.create(CONFIGMAPS, "ns", b"{}"))
        await client.create(CONFIGMAPS, "ns", b"{}")
    assert list(found) == texts


def test_a_warning_is_rewritten_once_and_only_if_it_is_collected():
    """The rewriting of a text can cost much, and a plan can have a thousand warnings."""
    calls: list[str] = []

    def rewrite(text: str) -> str:
        calls.append(text)
        return text.upper()

    with collected_warnings() as found, rewritten_warnings(rewrite):
        for number in range(1000):
            collect([f'299 - "text {number % 100}"'])
    collect(['299 - "text outside"'])
    assert list(found) == [f"TEXT {number}" for number in range(MOST)]
    assert calls == [f"text {number}" for number in range(MOST)]


@pytest.mark.cluster
@pytest.mark.newest
async def test_the_real_server_warns_about_an_unknown_field(control_plane: ControlPlane, namespace: str):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dta": {}}
    credentials = await load_credentials(str(control_plane.kubeconfig))
    async with open_client(credentials, user_agent="tests/1") as client:
        with collected_warnings() as found:
            await client.create(CONFIGMAPS, namespace, json.dumps(body).encode())
    assert list(found) == ['unknown field "dta"']
