"""Error messages do not quote the confidential parts of an object."""

import json

import pytest

from controller.apimachinery.redaction import HIDDEN, redacted

SECRET = "s3cr3t-Marker-7f3a"
BODY = json.dumps(
    {
        "metadata": {
            "name": "web-abcde",
            "annotations": {"kubevirt.io/ignitiondata": '{"passwd":"hunter-22","by":"web-abcde"}'},
        },
        "spec": {
            "domain": {"memory": "64X", "firmware": {"kernelBoot": {"kernelArgs": "console=ttyS0 token=k3rn3l"}}},
            "volumes": [
                {"name": "disk0", "persistentVolumeClaim": {"claimName": "a-claim-with-a-long-name"}},
                {"name": "init", "cloudInitNoCloud": {"userData": f"#cloud-config\npassword: {SECRET}\n"}},
                {"name": "other", "unknown": {"text": "x" * 200 + SECRET}},
            ],
        },
    }
).encode()


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (f"userData is wrong: password: {SECRET}", f"userData is wrong: {HIDDEN}: {HIDDEN}"),
        (f'spec.x: Invalid value: "{SECRET}": no', f'spec.x: Invalid value: "{HIDDEN}": no'),
        (f"bad part 7f3a of {SECRET[:9]}", f"bad part {HIDDEN} of {HIDDEN}"),
        (json.dumps(f"a:\n{SECRET}"), f'"a:\\n{HIDDEN}"'),
        (json.dumps(json.dumps(f"<{SECRET}>\n\t{SECRET}")), f'"\\"<{HIDDEN}>\\\\n\\\\t{HIDDEN}\\""'),
        (f"\\u003c{SECRET} \\x1b{SECRET}", f"\\u003c{HIDDEN} \\x1b{HIDDEN}"),
        ("ignition: hunter-22!", f"ignition: {HIDDEN}"),
        ("kernel argument token=k3rn3l", f"kernel argument token={HIDDEN}"),
        ('memory: Invalid value: "64X": not a quantity', 'memory: Invalid value: "64X": not a quantity'),
        ('claim "a-claim-with-a-long-name" not found', 'claim "a-claim-with-a-long-name" not found'),
        ('virtualmachineinstances "web-abcde" is forbidden', 'virtualmachineinstances "web-abcde" is forbidden'),
    ],
)
def test_only_words_of_confidential_texts_are_hidden(message: str, shown: str) -> None:
    assert redacted(message, BODY, name="web-abcde") == shown


SHORT = json.dumps(
    {
        "metadata": {"annotations": {"secret": "swordfi", "policy": "see the wiki: page, or ask"}},
        "spec": {
            "kernelArgs": "quiet single pass=letmein splash",
            "userData": '#cloud-config\npassword: hunter\nlist: root:boats, "x": "apple"\nlock: False\n'
            'runcmd:\n  - echo create pool\nusers: \'sesame\'  # must change\njson: {\\"key\\":\\"pear\\"}\n',
        },
    }
).encode()


@pytest.mark.parametrize("word", ["swordfi", "letmein", "hunter", "boats", "apple", "sesame", "pear"])
def test_a_short_word_is_hidden_if_it_is_a_value(word: str) -> None:
    assert redacted(f'spec.userData: "{word}" is a bad {word}!', SHORT) == (
        f'spec.userData: "{HIDDEN}" is a bad {HIDDEN}'
    )


@pytest.mark.parametrize(
    "message",
    [
        "cannot create the pool: a single key must change, false is not true",
        'admission webhook "x.example" denied the request: the users list has no echo or wiki',
    ],
)
def test_ordinary_words_stay_readable(message: str) -> None:
    assert redacted(message, SHORT) == message


@pytest.mark.parametrize("body", [b"", b"not json", b"[" * 5000, b"\xff", b"{}"])
def test_a_body_that_cannot_be_read_changes_nothing(body: bytes) -> None:
    assert redacted("a message", body) == "a message"
