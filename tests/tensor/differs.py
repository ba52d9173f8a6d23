"""What the table in ``docs/tensor.md`` adds to its pairs: where they differ, and what to use instead."""

INSTEAD = """
x.backward(), autograd.grad | `jax.grad`, `jax.vjp`
no_grad(), x.detach() | gradients are taken on request; `jax.lax.stop_gradient(x)`
x.requires_grad_() | the arguments that `jax.grad` names
func.vmap, func.jacrev, func.grad | `jax.vmap`, `jax.jacrev`, `jax.grad`
utils.checkpoint.checkpoint | `jax.checkpoint`
compile | `jax.jit`
manual_seed(0), Generator | `key = random.key(0)`, passed on and split
rand(2, 3), rand_like(x) | `random.uniform(key, (2, 3))`
randn(2, 3), randn_like(x) | `random.normal(key, (2, 3))`
randint(0, 9, (3,)) | `random.randint(key, (3,), 0, 9)`
randperm(9) | `random.permutation(key, 9)`
bernoulli(p) | `random.bernoulli(key, p)`
multinomial(p, 1) | `random.categorical(key, log(p))`
normal(x, p), poisson(p) | `x + p * random.normal(key, x.shape)`, `random.poisson(key, p)`
x.to(device), x.cuda(), x.cpu() | `jax.device_put(x, device)`
x.numpy(), from_numpy(x), x.item(), x.tolist() | `np.asarray(x)`, `asarray(x)`, `x.item()`, `x.tolist()`
x.add_(y), x[i] = y, x.fill_(2), x.copy_(y) | `x + y`, `x.at[i].set(y)`, `full_like(x, 2)`, `y`
x.contiguous(), x.stride(), x.storage() | arrays have no strides
x.expand_as(y), x.view_as(y) | `broadcast_to(x, y.shape)`, `reshape(x, y.shape)`
x.size(), x.size(0) | `x.shape`, `x.shape[0]`
mode(x), x.scatter_reduce | `unique(x, return_counts=True)`, `x.at[k].max(y)`, `.min`, `.mul`
cumulative_trapezoid, combinations, cartesian_prod | `cumsum`, `itertools` on the host, `meshgrid`
set_default_dtype(float64) | `jax.config.update("jax_enable_x64", True)`
is_tensor(x), is_floating_point(x) | `isinstance(x, jax.Array)`, `issubdtype(x.dtype, floating)` of `jax.numpy`
save, load | `fphys.train.Checkpoints`, `nn.write_weights`, `nn.read_weights`
nn.functional.conv2d, max_pool2d, avg_pool2d | `nn.Conv2d`, `nn.MaxPool2d`, `nn.AvgPool2d`: channels last
nn.functional.interpolate, grid_sample | `jax.image.resize`, `jax.scipy.ndimage.map_coordinates`
nn.functional.dropout, batch_norm, layer_norm | `nn.Dropout`, `nn.BatchNorm`, `nn.LayerNorm`
nn.functional.scaled_dot_product_attention | `nn.attention`: (..., position, head, d)
"""

DIFFERS = {
    "sign(x)": "NaN stays NaN; torch gives 0",
    "heaviside(x, y)": "NaN stays NaN; torch gives 0. Floating-point for integers",
    "abs(x)": "gradient at 0 is 1; torch's is 0. For a loss use `losses.l1_loss`, whose is 0",
    "clamp(x, -0.5, 0.5)": "gradient exactly at a bound is 1/2; torch's is 1",
    "x.clamp(min=0)": "gradient exactly at the bound is 1/2; torch's is 1",
    "linalg.norm(x)": "gradient at 0 is NaN; torch's is 0. `normalize` and `cdist` are finite there",
    "dist(x, y)": "gradient is NaN if x = y; torch's is 0",
    "nn.functional.pairwise_distance(x, y, eps=0)": "gradient is NaN if two rows are equal; torch's is 0",
    "digamma(p)": "NaN at 0; torch gives -inf",
    "topk(x, 2)": "of equal elements the first counts; torch does not say which",
    "topk(x, 2, dim=0, largest=False)": "of equal elements the first counts; torch does not say which",
    "kthvalue(x, 2)": "of equal elements the first counts; torch does not say which",
    "median(v)": "of an even number, the mean of the middle two; torch takes the lower",
    "nanmedian(v)": "of an even number, the mean of the middle two; torch takes the lower",
    "searchsorted(sort(u).values, v)": "where NaN goes",
    "bucketize(v, sort(u).values, right=True)": "where NaN goes",
    "split(v, 3)": "`split(v, 3)` here makes 3 equal parts; torch makes parts of 3",
    "split(v, (2, 5))": "places to cut, not sizes",
    "x.repeat(2, 1)": "`repeat` here is torch's `repeat_interleave`",
    "index_select(x, 1, k)": "an index out of range gives NaN (a float) or the least number; torch raises",
    "gather(x, 1, i % 4)": "an index out of range gives NaN (a float) or the least number; torch raises",
    "nn.functional.embedding(k, a)": "an index out of range is taken as the nearest; torch raises",
    "scatter_add(x, 1, i % 4, y)": "an index out of range is dropped; torch raises",
    "index_add(a, 0, k, x)": "an index out of range is dropped; torch raises",
    "index_copy(a, 1, k, x.T)": "an index out of range is dropped; torch raises",
    "nan_to_num(x / 0)": "integers divide to the default float type of each library",
    "sigmoid(x)": "no integers",
    "special.expit(x)": "no integers",
    "x.type_as(i)": "NaN as an integer is no certain number in either",
    "nn.functional.relu6(x)": "integers become floats",
    "nn.functional.binary_cross_entropy(sigmoid(x), sigmoid(y))": "no integers, as in `sigmoid`",
    "special.ndtr(x)": "no integers",
    "linalg.matrix_rank(x)": "an empty matrix raises; torch gives 0",
    "argsort(x, dim=1)": "equal elements keep their order; torch's do with `stable=True`",
    "sort(x, dim=1).indices": "equal elements keep their order; torch's do with `stable=True`",
}
"""What is not the same at an edge, by torch's expression; ``test_edges`` finds others."""
