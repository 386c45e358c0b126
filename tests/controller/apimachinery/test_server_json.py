"""JSON in the encoding of the API server: the order of the fields, and the escaped characters."""

from msgspec import Raw, Struct

from controller.apimachinery.raw_json import encode_as_server


class Thing(Struct, omit_defaults=True, rename="camel"):
    wanted_too: int = 0
    names: dict[str, str] | None = None
    as_it_was: Raw = Raw()


def test_fields_are_sorted_at_every_depth() -> None:
    thing = Thing(2, {"b": "2", "a/x": "1", "B": "3"}, Raw(b'{"a":[1e+22,2.5],"b":null}'))
    written = b'{"asItWas":{"a":[1e+22,2.5],"b":null},"names":{"B":"3","a/x":"1","b":"2"},"wantedToo":2}'
    assert encode_as_server(thing) == written


def test_only_the_special_characters_of_html_are_escaped() -> None:
    text = "<a href='x'>&\u2028\u2029é 🙂 \x01\x7f\b\f\t/"
    written = rb'"\u003ca href=' + b"'x'" + rb"\u003e\u0026\u2028\u2029" + "é 🙂 ".encode() + b"\\u0001\x7f\\b\\f\\t/"
    assert encode_as_server({"<": text}) == rb'{"\u003c":' + written + b'"}'
