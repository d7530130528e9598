"""Operation counts and price lists as a vector space over whole numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nas.ops import OPS, Cost, Ops

vectors = st.builds(Ops, *[st.integers(0, 10**18)] * 7)
costs = st.builds(Cost, vectors, vectors, vectors, vectors)


@given(vectors, vectors, st.integers(0, 1000))
def test_counts_are_a_vector_space_over_exact_integers(a: Ops, b: Ops, times: int) -> None:
    assert a + b == Ops(*[x + y for x, y in zip(a, b)])
    assert a * times == Ops(*[x * times for x in a])
    assert (a + b * times).price(OPS) == a.price(OPS) + times * b.price(OPS)
    assert a.price(b) == sum(x * y for x, y in zip(a, b))


@given(costs, costs)
def test_costs_add_by_pass(a: Cost, b: Cost) -> None:
    assert (a + b).train == a.train + b.train
    assert (a + b).evaluate == a.evaluate + b.evaluate
    assert a.train == a.forward + a.backward
    assert a.backward == a.input_grad + a.weight_grad
