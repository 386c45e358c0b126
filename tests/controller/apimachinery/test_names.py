from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.names import SAFE_ALPHABET, free_suffixes, is_label, is_subdomain, suffixes


def first(seed: str, number: int) -> list[str]:
    return list(islice(suffixes(seed), number))


@given(st.text(), st.integers(1, 2000))
def test_r5_suffixes_are_five_letters_of_the_safe_alphabet_and_depend_on_the_seed_alone(seed, number):
    words = first(seed, number)
    assert words == first(seed, number)
    assert all(len(word) == 5 and set(word) <= set(SAFE_ALPHABET) for word in words)


@given(st.sets(st.integers(0, 60)))
def test_r5_taken_names_are_skipped_and_the_lowest_slots_come_first(taken_slots):
    words = first("uid", 80)
    taken = {f"test{words[slot]}" for slot in taken_slots}
    expected = [word for slot, word in enumerate(words) if slot not in taken_slots]
    assert list(islice(free_suffixes("test", "uid", taken=taken), 20)) == expected[:20]


def test_r5_no_name_occurs_twice():
    assert len(set(islice(free_suffixes("test", "uid", taken=()), 20_000))) == 20_000


LABELS = ["web", "web-1", "a" * 63]
SUBDOMAINS = ["a" * 64, "web.example.org", "a" * 253]
NEITHER = ["a" * 254, "", "-a", "a-", "A", "a_b", ".a", "a.", "a..b", "grün", "a\n"]


@pytest.mark.parametrize("text", [*LABELS, *SUBDOMAINS, *NEITHER])
def test_valid_names_are_those_of_kubernetes(text):
    assert (is_label(text), is_subdomain(text)) == (text in LABELS, text not in NEITHER)
