"""Published networks, counted by us, by torch's counter and by what oneDNN executed."""

from __future__ import annotations

import pytest

from nas.ops import OPS
from nas.seeds import resolve_seed
from tests.nas.oracles import LIMIT_SECONDS, Executed, by_torch, by_us, calls, executed, operations
from tests.nas.published.networks import FILES, NETWORKS, text

# Parameters and 10^9 multiply-accumulates forward, as `num_params` and `_ops` of torchvision 0.29's
# IMAGENET1K_V1 weights: github.com/pytorch/vision/tree/main/torchvision/models.
TORCHVISION = {
    "alexnet": (61_100_840, 0.714),
    "densenet121": (7_978_856, 2.834),
    "googlenet": (6_624_904, 1.498),
    # Less the auxiliary classifier: two convolutions with their batch norms, and a dense layer.
    "inception_v3": (27_161_264 - (768 * 128 + 256 + 128 * 768 * 25 + 1536 + 769_000), 5.713),
    "mobilenet_v2": (3_504_872, 0.301),
    "resnext50_32x4d": (25_028_904, 4.230),
    "squeezenet1_1": (1_235_496, 0.349),
    "vgg16": (138_357_544, 15.470),
}
BUILT = {name: build() for name, build in NETWORKS.items()}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_file_holds_the_network(name: str) -> None:
    path = FILES / f"{name}.json"
    assert path.read_text(encoding="utf-8") == text(BUILT[name]), (
        "python -m tests.nas.published.networks writes it"
    )
    assert resolve_seed(str(path)) == BUILT[name]


def test_there_is_no_other_file() -> None:
    assert {path.stem for path in FILES.glob("*.json")} == set(NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_and_products_are_the_published_ones(name: str) -> None:
    graph = BUILT[name]
    assert (graph.num_parameters, round(graph.cost.forward.mac / 1e9, 3)) == TORCHVISION[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_counter_equals_torch(name: str) -> None:
    assert by_us(BUILT[name]) == by_torch(BUILT[name])


def test_the_biases_of_vgg_by_hand() -> None:
    """Of 13 convolutions: a sum for each element out, forward and in the weights' gradient."""
    areas = {224: 2 * 64, 112: 2 * 128, 56: 3 * 256, 28: 3 * 512, 14: 3 * 512}
    convolutions = sum(side**2 * channels for side, channels in areas.items())
    row = BUILT["vgg16"].rows["bias"]
    assert row.num == 13 + 3
    assert row.cost.train.price(OPS) == 2 * (convolutions + 4096 + 4096 + 1000)
    assert 2 * convolutions == 27_095_040


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Executed]:
    return dict(zip(BUILT, executed(list(BUILT.values()), tmp_path_factory.mktemp("oracle"))))


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS + 20)
@pytest.mark.parametrize("name", NETWORKS)
def test_counter_equals_what_onednn_executed(steps: dict[str, Executed], name: str) -> None:
    step = steps[name]
    assert step.calls == calls(step.graph)
    assert step.operations == operations(step.graph, step.batch)
