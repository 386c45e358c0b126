"""Results are remembered within a budget of bytes. So a template is parsed once (P30)."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec import Raw

from controller.kubevirt.vmi_types import TemplateMeta, VMITemplate
from controller.pool.members.revisions import read_revisions
from controller.pool.plan import plan
from controller.pool.spec.template import _remembered
from controller.pool.status import next_status
from informers.memo import OVERHEAD, LastResult, Memo
from tests.pool_builders import intent_of, pool, revision, snapshot, vm_spec, vms


def template(text: str, **meta: Any) -> VMITemplate:
    return VMITemplate(TemplateMeta(**meta), Raw(msgspec.json.encode({"text": text})))


class Parser:
    """Returns the spec, and counts the calls for each spec."""

    def __init__(self) -> None:
        self.calls = Counter[bytes]()

    def __call__(self, wire: VMITemplate, *flags: bool) -> str:
        self.calls[bytes(wire.spec)] += 1
        return bytes(wire.spec).decode() + str(flags)


def test_equal_templates_are_parsed_once_and_others_are_not_mixed_up() -> None:
    parser = Parser()
    memo = Memo(parser)
    for _ in range(3):
        assert memo(template("a"), True) == '{"text":"a"}(True,)'
    assert parser.calls.total() == 1
    others = [memo(template("a"), False), memo(template("b"), True), memo(template("a", labels={"x": "y"}), True)]
    assert others == ['{"text":"a"}(False,)', '{"text":"b"}(True,)', '{"text":"a"}(True,)']
    assert parser.calls.total() == 4


def test_the_oldest_results_are_forgotten_when_the_budget_is_spent() -> None:
    parser = Parser()
    memo = Memo(parser, budget=4 * OVERHEAD)
    for text in ("a", "b", "c", "a", "d", "e", "a"):
        memo(template(text))
        assert memo.size <= 4 * OVERHEAD
    memo(template("b"))
    counts = {text: parser.calls[bytes(template(text).spec)] for text in "abcde"}
    assert counts == {"a": 1, "b": 2, "c": 1, "d": 1, "e": 1}
    memo(template("x" * 5 * OVERHEAD))
    assert memo.size == 0, "a result that is larger than the budget is not kept"


def test_two_threads_may_use_one_memo() -> None:
    memo = Memo(Parser(), budget=20 * OVERHEAD)
    texts = [str(number % 37) for number in range(4_000)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda text: memo(template(text)), texts))
    assert found == [f'{{"text":"{text}"}}()' for text in texts]
    assert 0 < memo.size <= 20 * OVERHEAD


def test_the_last_result_is_that_of_the_same_object() -> None:
    last, first, second = LastResult[list[int], list[int]](list), [1], [1]
    found = last(first)
    assert last(first) is found
    assert last(second) is not found
    assert last(first) is not found, "only the last one is remembered"


def large_spec(number: int) -> dict[str, Any]:
    spec = vm_spec(image=f"v{number}")
    spec["template"]["spec"]["domain"]["resources"] = {"requests": {f"r{n}": f"1.{n % 9}Gi" for n in range(900)}}
    return spec


def test_a_pass_parses_no_template_that_an_earlier_pass_has_parsed() -> None:
    owner = pool(spec=large_spec(0), generation=21)
    past = [revision(pool(spec=large_spec(number), generation=number)) for number in range(20)]
    seen = snapshot(owner, vms(owner, 0, 1, 2), revisions=past)
    plan(seen)
    before, entries = _remembered.size, len(_remembered._known)
    calls = Counter[str]()
    parse = _remembered._function

    def counted(*arguments: Any) -> Any:
        calls["parse"] += 1
        return parse(*arguments)

    _remembered._function = counted
    try:
        plan(seen)
        next_status(seen, ())
        # A new object of the same template, as after a status write.
        plan(snapshot(pool(spec=large_spec(0), generation=21), vms(owner, 0, 1, 2), revisions=past))
    finally:
        _remembered._function = parse
    assert calls["parse"] == 0
    assert (_remembered.size, len(_remembered._known)) == (before, entries)
    assert len(read_revisions(seen, intent_of(owner).template).templates) == 20
