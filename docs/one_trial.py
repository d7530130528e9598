"""One trial, whole, in one process without a master or a journal: python docs/one_trial.py"""

import random
from dataclasses import replace
from time import perf_counter

from aiperf.config import load_preset
from aiperf.data import load
from aiperf.device import bind
from aiperf.parallel.parallel import Solo
from aiperf.proposing.pace import Pace
from aiperf.training.built_trial import Rank, build
from aiperf.training.kept_network import Kept
from aiperf.training.train import train
from aiperf.wire.messages import Validated
from aiperf.wire.trial import HyperParameters, Trial
from nas.morphisms import WidenTrunk
from nas.ops import OPS, TENSOR_OPS
from nas.seeds import resolve_seed
from nas.weights import initial

# What a rank has for the whole run: a device, images, how it trains, and its group (here it is alone).
config = load_preset("digits")
device = bind("cpu", index=0)
device.declare("fp32")
device.use_threads(1)
images = load(config.data, device.torch, config.random_seed)
rank = Rank(device, images, replace(config.training, format="fp32"), Solo())

# An architecture is data, and its weights are arrays by name. Neither needs torch.
seed = resolve_seed("residual-4-8-16", input=(1, 32, 32), classes=10)
weights = initial(seed, config.random_seed)

# A morphism edits the architecture. `carry` computes the weights with which the child computes what its
# parent computes, so nothing that the parent has learnt is lost.
morphism = WidenTrunk.propose(seed, random.Random(3))
child = morphism.apply(seed)
start = Kept(child, morphism.carry(seed, weights), state={})
print(f"{morphism}: {seed.num_parameters:,} to {child.num_parameters:,} parameters")

# The trial as the search would propose it. `build` makes a torch network of it and loads the first batch.
hyper = HyperParameters(learning_rate=0.1, batch_size=50, weight_decay=3e-3, label_smoothing=0.1)
trial = Trial(number=1, parent=0, morphisms=(morphism,), hyper=hyper, round=1, epochs=16, seed=1)
attempt = build(rank, trial, attempt=1, start=start)

# `train` reports blocks of steps and validations as they happen; a validation closes a segment.
reports: list[object] = []
began = perf_counter()
end = train(rank, attempt, Pace(), reports.append)
seconds = perf_counter() - began
segments = [report.segment for report in reports if isinstance(report, Validated)]
for one in segments:
    print(f"segment {one.index}: {one.steps} steps, {one.train_examples} images, then error {one.error:.1%}")

# A closed segment is credited: its images times what one image costs, counted from the architecture.
trained, validated = sum(one.train_examples for one in segments), sum(one.of for one in segments)
cost = child.cost
work = cost.train * trained + cost.evaluate * validated
print(f"trial {trial.number} is {end.state.value}: {trained} images trained, {validated} validated")
print(f"one image: {cost.train.price(OPS):,} operations to train, {cost.evaluate.price(OPS):,} to validate")
print(f"credited: {work.price(OPS):,} operations, of these tensor operations: {work.price(TENSOR_OPS):,}")
print(f"{work.price(OPS) / seconds / 1e9:.2f} GOPS over {seconds:.2f} seconds")
