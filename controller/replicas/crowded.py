"""The order in which equal members of a set or pool leave: those on the nodes with the most members first (R6, P8)."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import chain
from typing import Any, TypeVar

T = TypeVar("T")


def from_crowded_nodes(
    ranks: Mapping[Any, Iterable[T]], others: Iterable[T], *, key: Callable[[T], Any], node_of: Callable[[T], str]
) -> Iterator[T]:
    """Yield the members in `ranks`, by rank. Each one lowers the number of members on its node.

    Of the members with the same rank, those on the node with the most members come first, and then those with the
    smallest key. No two keys are equal. Members without a node come last. `others` stay, and count on their nodes too.
    """
    left = Counter(filter(None, map(node_of, chain(chain.from_iterable(ranks.values()), others))))
    for rank in sorted(ranks):
        nodes: defaultdict[str, list[tuple[Any, T]]] = defaultdict(list)
        for each in ranks[rank]:
            nodes[node_of(each)].append((key(each), each))
        firsts = []
        for node, candidates in nodes.items():
            heapify(candidates)
            firsts.append((-left[node], candidates[0][0], node))
        heapify(firsts)
        while firsts:
            *_, node = firsts[0]
            candidates = nodes[node]
            yield heappop(candidates)[1]
            left[node] -= bool(node)
            # A rank of a node is never smaller than the one before, so the first candidate of each node is enough.
            if candidates:
                heapreplace(firsts, (-left[node], candidates[0][0], node))
            else:
                heappop(firsts)
