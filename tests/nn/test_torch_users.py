"""What a torch user brings along and expects: state dicts, pools over one and three axes, signatures, a plateau."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from fphys import nn, optim, train

pytestmark = pytest.mark.usefixtures("flax_promotes")
RNG = np.random.default_rng(0)


class Ours(nn.Module):
    def __init__(self, *, rngs):
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, rngs=rngs), nn.BatchNorm(4, rngs=rngs), nn.relu)
        self.words = nn.Embedding(7, 4, rngs=rngs)
        self.lstm = nn.LSTM(4, 4, 2, bidirectional=True, rngs=rngs)
        self.norm = nn.LayerNorm(8, rngs=rngs)
        self.attention = nn.MultiHeadAttention(2, 8, rngs=rngs)
        self.head = nn.Linear(8, 3, rngs=rngs)

    def __call__(self, x, tokens):
        seen = self.stem(x).mean((1, 2))
        text, _ = self.lstm(self.words(tokens) + seen[:, None])
        return self.head(self.attention(self.norm(text)))


class Theirs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        self.words = torch.nn.Embedding(7, 4)
        self.lstm = torch.nn.LSTM(4, 4, 2, bidirectional=True, batch_first=True)
        self.norm = torch.nn.LayerNorm(8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x, tokens):
        text, _ = self.lstm(self.words(tokens) + self.stem(x).mean((2, 3))[:, None])
        normed = self.norm(text)
        return self.head(self.attention(normed, normed, normed)[0])


def test_a_state_dict_of_ones_own_module_comes_in():
    theirs = Theirs().double().eval()
    with torch.no_grad():
        for value in theirs.state_dict().values():
            if value.is_floating_point():
                value.uniform_(0.5, 1.5)
    module, params, aux = jax.eval_shape(lambda key: nn.init(Ours, key), jax.random.key(0))
    params, aux = jax.tree.map(lambda s: jnp.zeros(s.shape), (params, aux))
    state = theirs.state_dict()
    loaded = nn.load_weights(module, params, aux, state)
    x, tokens = RNG.standard_normal((2, 5, 5, 3)), RNG.integers(0, 7, (2, 6))
    found, _ = nn.apply(module, *loaded, jnp.asarray(x), tokens=jnp.asarray(tokens))
    wanted = theirs(torch.tensor(x).permute(0, 3, 1, 2), torch.tensor(tokens)).detach()
    np.testing.assert_allclose(found, wanted, rtol=1e-12)

    with pytest.raises(nn.WeightsError, match=r"head\.kernel has shape \(8, 4\), the model's \(8, 3\)"):
        nn.load_weights(module, params, aux, state | {"head.weight": torch.ones(4, 8)})
    with pytest.raises(nn.WeightsError, match=r"other\.weight is not in the model"):
        nn.load_weights(module, params, aux, state | {"other.weight": torch.ones(4, 8)}, strict=False)
    body = {name: value for name, value in state.items() if not name.startswith("head.")}
    with pytest.raises(nn.WeightsError, match=r"head\.bias is missing; head\.kernel is missing"):
        nn.load_weights(module, params, aux, body)
    partly, _ = nn.load_weights(module, params, aux, body, strict=False)
    assert not partly["head"]["kernel"].any() and partly["norm"]["scale"].all()


def test_a_transposed_convolution_is_not_guessed():
    module, params, aux = jax.eval_shape(
        lambda key: nn.init(lambda rngs: nn.ConvTranspose(2, 2, (3, 3), rngs=rngs), key), jax.random.key(0)
    )
    with pytest.raises(nn.WeightsError, match="whose kernel torch stores mirrored"):
        nn.load_weights(module, params, aux, torch.nn.ConvTranspose2d(2, 2, 3).state_dict())


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("options", [{}, {"stride": 1, "padding": 1}])
def test_pools_over_one_and_three_axes(rank, options):
    ours, theirs = (getattr(where, f"MaxPool{rank}d")(3, **options) for where in (nn, torch.nn))
    x = RNG.standard_normal((2, *range(6, 6 + rank), 3))
    moved = torch.tensor(np.moveaxis(x, -1, 1).copy(), requires_grad=True)
    y = theirs(moved)
    np.testing.assert_array_equal(ours(jnp.asarray(x)), np.moveaxis(y.detach().numpy(), 1, -1))
    np.testing.assert_array_equal(ours(jnp.asarray(x)[None])[0], ours(jnp.asarray(x)))
    y.sum().backward()
    grad = jax.grad(lambda x: ours(x).sum())(jnp.asarray(x))
    np.testing.assert_array_equal(grad, np.moveaxis(moved.grad.numpy(), 1, -1))
    with pytest.raises(ValueError, match=f"a pool over {rank} axes takes them and the channel last"):
        ours(jnp.ones(3))


class Own(nn.Linear):
    pass


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (nn.Linear, ["in_features", "out_features", "rngs", "use_bias"]),
        (nn.Conv2d, ["in_features", "out_features", "kernel_size", "stride", "padding", "kernel_init"]),
        (nn.BatchNorm, ["num_features", "momentum", "epsilon"]),
        (nn.Dropout, ["rate", "rngs"]),
        (Own, ["in_features", "use_bias"]),
        (Ours, ["rngs"]),
    ],
)
def test_layers_show_their_arguments(layer, names):
    found = inspect.signature(layer).parameters
    assert set(names) <= set(found) and "args" not in found and "options" not in found
    assert "x" in inspect.signature(Ours(rngs=nn.Rngs(0))).parameters


@pytest.mark.parametrize("threshold", [1e-4, 0.0])
def test_the_rate_falls_on_a_plateau(threshold):
    """As torch's ReduceLROnPlateau: after patience + 1 updates without a smaller loss."""
    given = {"factor": 0.5, "patience": 2, "threshold": threshold}
    optimizer = optim.chain(optim.SGD(1.0), optim.ReduceLROnPlateau(**given))
    state = train.init({"x": jnp.zeros(())}, optimizer)
    moves = []
    for _ in range(8):
        before = state.params["x"]
        state, _ = train.step(
            lambda p, aux, b, k: (p["x"] - p["x"] + 1.0 + 0 * b, aux, {}), optimizer, state, jnp.ones(())
        )
        moves.append(float(state.opt[-1].scale))
        assert before == state.params["x"]
    reference = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)
    plateau, wanted = torch.optim.lr_scheduler.ReduceLROnPlateau(reference, **given), []
    for _ in range(8):
        plateau.step(1.0)
        wanted.append(reference.param_groups[0]["lr"])
    assert moves == wanted
