"""The table in ``docs/tensor.md``: torch's functions and ours, as one list of pairs of expressions.

``python -m tests.tensor.table`` writes the page. The tests evaluate each pair on random input and compare.
"""

from pathlib import Path

from .differs import DIFFERS, INSTEAD

PAGE = Path(__file__).parents[2] / "docs" / "tensor.md"

HEAD = """# Arrays: from torch to fphys

`fphys.tensor` holds functions on arrays. There is no tensor class: arrays are JAX's. The tables below list expressions
in torch and their counterparts here. `python -m tests.tensor.table` writes this page from a list, and the tests compare
every pair on random input and at the edges.

In the expressions, `x` and `y` are matrices of one shape, `a` is a square matrix, `s` a symmetric positive definite
one, `b` and `c` are stacks of matrices, and `u`, `v`, `w` vectors. `p` is positive, `q` between -1 and 1, `z` complex.
`i` and `j` are integers, `m` and `n` booleans, `k` indices. Names on the left are from `torch`, on the right from
`fphys.tensor`; `nn` and `losses` are `fphys.nn` and `fphys.losses`.

- Arrays are immutable. Where torch changes an array in place, `x.at[i].set(y)`, `x.at[i].add(y)` and the functions
  below return a new one.
- `axis` is torch's `dim`. Indices are int32 unless x64 is on.
- "same" means: also for NaN and infinity, zeros, integers and empty arrays, wherever torch accepts them. What is not
  the same is said in the row.
- Under `jit` nothing can raise for an index out of range: reading gives NaN, writing drops it.
- `std` and `var` divide by n by default; torch's default is `correction=1`.
- Random numbers need a key: `random.normal(key, (3, 4))` is `torch.randn(3, 4)`, and likewise `random.uniform`,
  `random.randint`, `random.permutation`, `random.bernoulli`, `random.categorical`.
- Devices: `jax.device_put(x, device)` is `x.to(device)`; `jax.lax.stop_gradient(x)` is `x.detach()`.
- Some functions check the shapes of their arguments on request: `cdist`, `chunk`, `cosine_similarity`,
  `cumlogsumexp`, `cummax`, `cummin`, `diag_embed`, `normalize`, `scatter_add`, `topk` and `unfold`. The others are
  JAX's or raise errors of their own. Set `FPHYS_SHAPES=1` in the environment or `shapes = true` in `fphys.toml`, or
  use a block:

```python
import jax.numpy as jnp

import fphys

with fphys.typing.checked():
    try:
        fphys.tensor.cdist(jnp.ones((5, 3)), jnp.ones((7, 2)))
    except fphys.typing.ShapeError as error:
        print(error)
```

The decorator `fphys.typing.shaped` adds this check to your own functions.
"""

CREATION = """
zeros(2, 3) | zeros((2, 3))
ones(2, 3) | ones((2, 3))
full((2, 3), 7.0) | full((2, 3), 7.0)
empty(2, 3).shape | empty((2, 3)).shape
zeros_like(x) | zeros_like(x)
ones_like(x) | ones_like(x)
full_like(x, 2.5) | full_like(x, 2.5)
eye(3) | eye(3)
arange(2, 11, 3) | arange(2, 11, 3)
linspace(0, 1, 5) | linspace(0, 1, 5)
logspace(0, 2, 5) | logspace(0, 2, 5)
tensor([1.0, 2.0]) | array([1.0, 2.0])
clone(x) | array(x)
complex(x, y) | complex(x, y)
meshgrid(u, v, indexing="ij") | meshgrid(u, v, indexing="ij")
diag(u) | diag(u)
diag_embed(x) | diag_embed(x)
diag_embed(x, 1) | diag_embed(x, 1)
diag_embed(x, -2, 0, 2) | diag_embed(x, -2, 0, 2)
x.new_zeros(2) | zeros(2, x.dtype)
as_tensor(x) | asarray(x)
block_diag(x, y) | block_diag(x, y)
nn.functional.one_hot(k, 4) | one_hot(k, 4, dtype=int)
"""

ELEMENTS = """
add(x, y) | add(x, y)
add(x, y, alpha=2) | x + 2 * y
sub(x, y) | subtract(x, y)
mul(x, y) | multiply(x, y)
div(x, y) | divide(x, y)
div(x, y, rounding_mode="floor") | floor_divide(x, y)
div(x, y, rounding_mode="trunc") | trunc(divide(x, y))
remainder(x, y) | remainder(x, y)
fmod(x, y) | fmod(x, y)
neg(x) | negative(x)
abs(x) | abs(x)
sign(x) | sign(x)
signbit(x) | signbit(x)
copysign(x, y) | copysign(x, y)
reciprocal(x) | reciprocal(x)
square(x) | square(x)
sqrt(p) | sqrt(p)
rsqrt(p) | rsqrt(p)
pow(p, y) | pow(p, y)
pow(x, 3) | pow(x, 3)
exp(x) | exp(x)
exp2(x) | exp2(x)
expm1(x) | expm1(x)
log(p) | log(p)
log2(p) | log2(p)
log10(p) | log10(p)
log1p(p) | log1p(p)
logaddexp(x, y) | logaddexp(x, y)
logaddexp2(x, y) | logaddexp2(x, y)
sin(x) | sin(x)
cos(x) | cos(x)
tan(x) | tan(x)
asin(q) | arcsin(q)
acos(q) | arccos(q)
atan(x) | arctan(x)
atan2(x, y) | arctan2(x, y)
sinh(x) | sinh(x)
cosh(x) | cosh(x)
tanh(x) | tanh(x)
asinh(x) | arcsinh(x)
acosh(1 + p) | arccosh(1 + p)
atanh(q) | arctanh(q)
sinc(x) | sinc(x)
hypot(x, y) | hypot(x, y)
deg2rad(x) | deg2rad(x)
rad2deg(x) | rad2deg(x)
floor(x) | floor(x)
ceil(x) | ceil(x)
round(x) | round(x)
trunc(x) | trunc(x)
frac(x) | x - trunc(x)
clamp(x, -0.5, 0.5) | clip(x, -0.5, 0.5)
lerp(x, y, 0.3) | x + 0.3 * (y - x)
lerp(x, y, q) | x + q * (y - x)
addcmul(x, y, q, value=0.5) | x + 0.5 * y * q
addcdiv(x, y, p, value=0.5) | x + 0.5 * y / p
maximum(x, y) | maximum(x, y)
minimum(x, y) | minimum(x, y)
fmax(x, y) | fmax(x, y)
fmin(x, y) | fmin(x, y)
heaviside(x, y) | heaviside(x, y)
ldexp(x, i) | ldexp(x, i)
nextafter(x, y) | nextafter(x, y)
nan_to_num(x / 0) | nan_to_num(x / 0)
gcd(i, j) | gcd(i, j)
lcm(i, j) | lcm(i, j)
bitwise_and(i, j) | bitwise_and(i, j)
bitwise_or(i, j) | bitwise_or(i, j)
bitwise_xor(i, j) | bitwise_xor(i, j)
bitwise_not(i) | bitwise_invert(i)
bitwise_left_shift(i, j) | bitwise_left_shift(i, j)
bitwise_right_shift(i, j) | bitwise_right_shift(i, j)
logical_and(m, n) | logical_and(m, n)
logical_or(m, n) | logical_or(m, n)
logical_xor(m, n) | logical_xor(m, n)
logical_not(m) | logical_not(m)
real(z) | real(z)
imag(z) | imag(z)
angle(z) | angle(z)
conj_physical(z) | conj(z)
sigmoid(x) | sigmoid(x)
special.expit(x) | sigmoid(x)
x.clamp(min=0) | clip(x, 0, None)
x.float() | x.astype("float32")
x.type_as(i) | x.astype(i.dtype)
isreal(z) | isreal(z)
floor_divide(x, y) | floor_divide(x, y)
float_power(p, y) | pow(p, y)
mvlgamma(p + 2, 1) | gammaln(p + 2)
softmax(x, dim=1) | softmax(x, axis=1)
log_softmax(x, dim=1) | log_softmax(x, axis=1)
erf(x) | erf(x)
erfc(x) | erfc(x)
erfinv(q) | erfinv(q)
lgamma(p) | gammaln(p)
digamma(p) | digamma(p)
polygamma(1, p) | polygamma(1, p)
i0(x) | i0(x)
logit(0.5 + q / 4) | logit(0.5 + q / 4)
xlogy(x, p) | xlogy(x, p)
special.xlog1py(x, p) | xlog1py(x, p)
special.entr(p) | entr(p)
special.ndtr(x) | ndtr(x)
"""

COMPARISON = """
eq(i, j) | equal(i, j)
ne(i, j) | not_equal(i, j)
lt(x, y) | less(x, y)
le(x, y) | less_equal(x, y)
gt(x, y) | greater(x, y)
ge(x, y) | greater_equal(x, y)
isclose(x, y) | isclose(x, y)
allclose(x, x) | allclose(x, x)
equal(x, y) | array_equal(x, y)
isnan(x / 0) | isnan(x / 0)
isinf(x / 0) | isinf(x / 0)
isfinite(x / 0) | isfinite(x / 0)
isin(i, k) | isin(i, k)
where(m, x, y) | where(m, x, y)
masked_fill(x, m, 7) | where(m, 7, x)
"""

REDUCTION = """
sum(x) | sum(x)
sum(x, dim=1, keepdim=True) | sum(x, axis=1, keepdims=True)
prod(x, dim=0) | prod(x, axis=0)
mean(x, dim=(0, 1)) | mean(x, axis=(0, 1))
median(v) | median(v)
std(x, dim=1) | std(x, axis=1, correction=1)
var(x, dim=1) | var(x, axis=1, correction=1)
var(x, dim=1, correction=0) | var(x, axis=1)
amax(x, dim=1) | max(x, axis=1)
amin(x, dim=1) | min(x, axis=1)
max(x, dim=1).values | max(x, axis=1)
max(x, dim=1).indices | argmax(x, axis=1)
min(x, dim=0).indices | argmin(x, axis=0)
argmax(x) | argmax(x)
argmin(x, dim=1) | argmin(x, axis=1)
any(m, dim=1) | any(m, axis=1)
all(m, dim=1) | all(m, axis=1)
count_nonzero(i) | count_nonzero(i)
logsumexp(x, dim=1) | logsumexp(x, axis=1)
nansum(x) | nansum(x)
nanmean(x) | nanmean(x)
quantile(x, 0.3, dim=1) | quantile(x, 0.3, axis=1)
linalg.norm(x) | linalg.norm(x)
linalg.vector_norm(x, ord=1, dim=1) | linalg.vector_norm(x, ord=1, axis=1)
nn.functional.normalize(x, dim=1) | normalize(x, axis=1)
nn.functional.cosine_similarity(x, y) | cosine_similarity(x, y, axis=1)
aminmax(x) | (min(x), max(x))
std_mean(x, dim=1) | (std(x, axis=1, correction=1), mean(x, axis=1))
nanmedian(v) | nanmedian(v)
nn.functional.pairwise_distance(x, y, eps=0) | linalg.norm(x - y, axis=1)
dist(x, y) | linalg.norm(x - y)
cumsum(x, dim=1) | cumsum(x, axis=1)
cumsum(x, dim=-2) | cumsum(x, axis=-2)
cumprod(x, dim=0) | cumprod(x, axis=0)
cummax(x, dim=1).values | cummax(x, axis=1)
cummin(x, dim=1).values | cummin(x, axis=1)
logcumsumexp(x, dim=1) | cumlogsumexp(x, axis=1)
logcumsumexp(x, dim=-1) | cumlogsumexp(x, axis=-1)
cummax(x, dim=-2).values | cummax(x, axis=-2)
diff(x, dim=1) | diff(x, axis=1)
trapezoid(x, dim=1) | trapezoid(x, axis=1)
gradient(u)[0] | gradient(u)
bincount(k) | bincount(k)
histc(u, bins=5, min=-2, max=2) | histogram(u, bins=5, range=(-2, 2))[0]
cov(x) | cov(x)
corrcoef(x) | corrcoef(x)
"""

SHAPE = """
reshape(x, (2, -1)) | reshape(x, (2, -1))
ravel(x) | ravel(x)
flatten(b, 1) | collapse(b, 1)
flatten(b, 0, 1) | collapse(b, 0, 2)
flatten(x[0, 0]) | ravel(x[0, 0])
unflatten(b, 1, (3, 1)) | reshape(b, (2, 3, 1, 4))
x.view(4, 3) | reshape(x, (4, 3))
x.numel() | x.size
x.dim() | x.ndim
x.T | x.T
conj_physical(z).mT | conj(matrix_transpose(z))
squeeze(x[:, :1], 1) | squeeze(x[:, :1], 1)
unsqueeze(x, 1) | expand_dims(x, 1)
transpose(b, 0, 2) | swapaxes(b, 0, 2)
permute(b, (2, 0, 1)) | permute_dims(b, (2, 0, 1))
movedim(b, 0, 2) | moveaxis(b, 0, 2)
t(x) | transpose(x)
x.mT | matrix_transpose(x)
broadcast_to(u, (3, 4)) | broadcast_to(u, (3, 4))
x.expand(2, 3, 4) | broadcast_to(x, (2, 3, 4))
tile(x, (2, 1)) | tile(x, (2, 1))
repeat_interleave(x, 2, dim=0) | repeat(x, 2, axis=0)
x.repeat(2, 1) | tile(x, (2, 1))
cat((x, y), dim=1) | concatenate((x, y), axis=1)
stack((x, y), dim=1) | stack((x, y), axis=1)
hstack((x, y)) | hstack((x, y))
vstack((x, y)) | vstack((x, y))
unbind(x, dim=1) | unstack(x, axis=1)
chunk(v, 2) | chunk(v, 2)
split(v, 3) | split(v, [3, 6])
split(v, (2, 5)) | split(v, [2])
tensor_split(v, (2, 4)) | split(v, [2, 4])
dstack((x, y)) | stack((x, y), axis=2)
column_stack((u, w)) | stack((u, w), axis=1)
atleast_1d(x[0, 0]) | atleast_1d(x[0, 0])
nn.functional.pad(x, (1, 2), value=3.0) | pad(x, ((0, 0), (1, 2)), constant_values=3.0)
nn.functional.pad(x, (1, 2), mode="replicate") | pad(x, ((0, 0), (1, 2)), mode="edge")
tensor_split(v, 3) | array_split(v, 3)
flip(x, (0,)) | flip(x, 0)
fliplr(x) | fliplr(x)
flipud(x) | flipud(x)
rot90(x) | rot90(x)
roll(x, 1, 0) | roll(x, 1, 0)
nn.functional.pad(x, (1, 2)) | pad(x, ((0, 0), (1, 2)))
narrow(x, 1, 1, 2) | slice_in_dim(x, 1, 3, axis=1)
select(x, 1, 2) | take(x, 2, axis=1)
x.unfold(1, 2, 1) | unfold(x, 1, 2, 1)
v.unfold(0, 3, 2) | unfold(v, 0, 3, 2)
tril(a) | tril(a)
triu(a, 1) | triu(a, 1)
diagonal(a) | diagonal(a)
diag(a) | diag(a)
"""

INDEXING = """
index_select(x, 1, k) | take(x, k, axis=1)
take_along_dim(x, i % 3, 0) | take_along_axis(x, i % 3, 0)
gather(x, 1, i % 4) | take_along_axis(x, i % 4, 1)
scatter(x, 1, i[:, :1] % 4, y) | put_along_axis(x, i[:, :1] % 4, y[:, :1], 1, inplace=False)
scatter_add(x, 1, i % 4, y) | scatter_add(x, 1, i % 4, y)
scatter_add(x, 0, i % 3, y) | scatter_add(x, 0, i % 3, y)
index_add(a, 0, k, x) | a.at[k].add(x)
index_copy(a, 1, k, x.T) | a.at[:, k].set(x.T)
nonzero(m) | argwhere(m)
masked_select(x, m) | x[m]
x.index_fill(0, k % 3, 5.0) | x.at[k % 3].set(5.0)
sort(x, dim=1).indices | argsort(x, axis=1)
nn.functional.embedding(k, a) | a[k]
x[m] | x[m]
sort(x, dim=1).values | sort(x, axis=1)
argsort(x, dim=1) | argsort(x, axis=1)
sort(x, dim=1, descending=True).values | sort(x, axis=1, descending=True)
topk(x, 2) | topk(x, 2)
topk(x, 2, dim=0, largest=False) | topk(x, 2, axis=0, largest=False)
kthvalue(x, 2) | (sort(x)[:, 1], argsort(x)[:, 1])
unique(k) | unique(k)
searchsorted(sort(u).values, v) | searchsorted(sort(u), v)
bucketize(v, sort(u).values, right=True) | digitize(v, sort(u))
"""

LINEAR = """
matmul(b, c) | matmul(b, c)
bmm(b, c) | matmul(b, c)
mm(x, y.T) | x @ y.T
mv(x, u) | x @ u
dot(u, w) | dot(u, w)
inner(x, y) | inner(x, y)
outer(u, v) | outer(u, v)
kron(x, a) | kron(x, a)
linalg.cross(x[:, :3], y[:, :3]) | cross(x[:, :3], y[:, :3])
linalg.vecdot(x, y) | vecdot(x, y)
einsum("ij,kj->ik", x, y) | einsum("ij,kj->ik", x, y)
tensordot(x, y, dims=2) | tensordot(x, y, axes=2)
addmm(x[:, :3], x, y.T) | x[:, :3] + x @ y.T
addmm(x[:, :3], x, y.T, beta=2, alpha=3) | 2 * x[:, :3] + 3 * x @ y.T
addmm(x[:, :3], x, y.T, beta=0) | x @ y.T
addmv(u[:3], x, w) | u[:3] + x @ w
addr(x, u[:3], w) | x + outer(u[:3], w)
nn.functional.linear(x, y) | x @ y.T
linalg.eigh(s).eigenvalues | linalg.eigh(s)[0]
cdist(x, y, p=1) | cdist(x, y, p=1)
cdist(x, y, p=3) | cdist(x, y, p=3)
baddbmm(b @ c, b, c) | b @ c + b @ c
cdist(x, y) | cdist(x, y)
trace(a) | trace(a)
linalg.det(a) | linalg.det(a)
linalg.slogdet(a) | linalg.slogdet(a)
linalg.inv(a) | linalg.inv(a)
linalg.pinv(x) | linalg.pinv(x)
linalg.solve(a, u) | linalg.solve(a, u)
linalg.lstsq(x.T, u[:, None]).solution | linalg.lstsq(x.T, u[:, None])[0]
linalg.solve_triangular(a, x.T, upper=True) | solve_triangular(a, x.T)
linalg.cholesky(s) | linalg.cholesky(s)
abs(linalg.qr(a).R) | abs(linalg.qr(a)[1])
linalg.svdvals(x) | linalg.svdvals(x)
linalg.eigvalsh(s) | linalg.eigvalsh(s)
linalg.matrix_norm(x, ord=2) | linalg.matrix_norm(x, ord=2)
linalg.matrix_rank(x) | linalg.matrix_rank(x)
linalg.matrix_power(a, 3) | linalg.matrix_power(a, 3)
linalg.matrix_exp(a) | expm(a)
linalg.multi_dot((x, a, y.T)) | linalg.multi_dot((x, a, y.T))
fft.fft(x) | fft.fft(x)
fft.irfft(fft.rfft(x)) | fft.irfft(fft.rfft(x))
"""

NETWORKS = """
nn.functional.relu(x) | nn.relu(x)
nn.functional.relu6(x) | nn.relu6(x)
nn.functional.leaky_relu(x, 0.1) | nn.leaky_relu(x, 0.1)
nn.functional.elu(x) | nn.elu(x)
nn.functional.selu(x) | nn.selu(x)
nn.functional.celu(x) | nn.celu(x)
nn.functional.silu(x) | nn.silu(x)
nn.functional.mish(x) | nn.mish(x)
nn.functional.gelu(x) | nn.gelu(x, approximate=False)
nn.functional.gelu(x, approximate="tanh") | nn.gelu(x)
nn.functional.glu(x) | nn.glu(x)
nn.functional.softplus(x) | nn.softplus(x)
nn.functional.softsign(x) | nn.soft_sign(x)
nn.functional.logsigmoid(x) | nn.log_sigmoid(x)
nn.functional.hardtanh(x) | nn.hard_tanh(x)
nn.functional.hardsigmoid(x) | nn.hard_sigmoid(x)
nn.functional.hardswish(x) | nn.hard_swish(x)
nn.functional.tanhshrink(x) | x - tanh(x)
nn.functional.softmin(x, dim=1) | softmax(-x, axis=1)
nn.functional.mse_loss(x, y) | losses.mse_loss(x, y)
nn.functional.l1_loss(x, y) | losses.l1_loss(x, y)
nn.functional.smooth_l1_loss(x, y) | losses.smooth_l1_loss(x, y)
nn.functional.huber_loss(x, y) | losses.huber_loss(x, y)
nn.functional.cross_entropy(x, i[:, 0] % 4) | losses.cross_entropy(x, i[:, 0] % 4)
nn.functional.nll_loss(x, i[:, 0] % 4) | losses.nll_loss(x, i[:, 0] % 4)
nn.functional.binary_cross_entropy(sigmoid(x), sigmoid(y)) | losses.binary_cross_entropy(sigmoid(x), sigmoid(y))
nn.functional.binary_cross_entropy_with_logits(x, q) | losses.binary_cross_entropy_with_logits(x, q)
nn.functional.kl_div(x, p, reduction="batchmean") | losses.kl_div(x, p, reduction="batchmean")
nn.functional.triplet_margin_loss(x, y, q) | losses.triplet_margin_loss(x, y, q)
"""

SECTIONS = {
    "Creation": CREATION,
    "Elementwise": ELEMENTS,
    "Comparison and selection": COMPARISON,
    "Reductions and cumulative sums": REDUCTION,
    "Shape": SHAPE,
    "Indexing and sorting": INDEXING,
    "Linear algebra": LINEAR,
    "Activations and losses": NETWORKS,
}

PAIRS = [
    (torch, ours)
    for text in SECTIONS.values()
    for line in text.strip().splitlines()
    for torch, ours in [line.split(" | ")]
]


def _verdict(torch: str) -> str:
    return f"differs: {DIFFERS[torch]}" if torch in DIFFERS else "same"


def page() -> str:
    """The page, from the list."""
    parts = [HEAD]
    for title, text in SECTIONS.items():
        rows = [line.split(" | ") for line in text.strip().splitlines()]
        parts.append(f"\n## {title}\n\n| torch | fphys.tensor | |\n|---|---|---|\n")
        parts += [f"| `{torch}` | `{ours}` | {_verdict(torch)} |\n" for torch, ours in rows]
    parts.append("\n## Use instead\n\n| torch | here |\n|---|---|\n")
    for line in INSTEAD.strip().splitlines():
        names, ours = line.split(" | ")
        parts.append(f"| `{names}` | {ours} |\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
