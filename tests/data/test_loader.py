"""Batches: every record once an epoch, shuffled, resumable anywhere, independent of workers and threads."""

import functools
import itertools
import json
import operator
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

from fphys import data
from fphys.data.source import Watched


class Listed:
    """The records of some arrays, one by one, as a reader of files gives them."""

    def __init__(self, arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays)

    def __getitem__(self, index):
        return self.arrays[int(index)]


def numbers(n):
    return data.Arrays(id=np.arange(n), square=np.arange(n)[:, None] ** 2.0)


def ids(batches):
    return [batch["id"].tolist() for batch in batches]


def test_every_record_once_an_epoch_in_a_new_order():
    drawn = ids(data.loader(numbers(20), 5, epochs=3, seed=4))
    epochs = [functools.reduce(operator.iadd, drawn[i : i + 4], []) for i in (0, 4, 8)]
    assert len(drawn) == 12 and all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [*epochs, range(20)]}) == 4
    assert ids(data.loader(numbers(20), 5, epochs=3, seed=4)) == drawn
    assert ids(data.loader(numbers(20), 5, epochs=3, seed=5)) != drawn


def test_in_order_and_with_a_remainder():
    options = {"shuffle": False, "epochs": 2}
    assert ids(data.loader(numbers(7), 3, **options)) == 2 * [[0, 1, 2], [3, 4, 5]]
    assert ids(data.loader(numbers(7), 3, drop_remainder=False, **options)) == 2 * [[0, 1, 2], [3, 4, 5], [6]]
    assert ids(data.loader(numbers(2), 3, drop_remainder=False, **options)) == 2 * [[0, 1]]


def test_columns_stay_together_and_batches_own_their_memory():
    source = numbers(12)
    for batch in data.loader(source, 4, epochs=1):
        np.testing.assert_array_equal(batch["square"][:, 0], batch["id"] ** 2.0)
        assert not np.shares_memory(batch["id"], source.columns["id"])


def test_without_end():
    assert len(list(itertools.islice(iter(data.loader(numbers(6), 3)), 50))) == 50


def test_records_one_by_one_give_the_same_batches():
    one, other = (data.loader(source, 4, epochs=2, seed=3) for source in (numbers(18), Listed(numbers(18))))
    for a, b in zip(one, other, strict=True):
        jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize(("n", "count", "drop"), [(24, 2, True), (25, 2, True), (23, 4, True), (22, 2, False)])
def test_shards_are_disjoint_and_of_one_length(n, count, drop):
    options = {"epochs": 1, "seed": 2, "drop_remainder": drop}
    shards = [ids(data.loader(numbers(n), 3, shard=(i, count), **options)) for i in range(count)]
    drawn = sorted(functools.reduce(operator.iadd, functools.reduce(operator.iadd, shards, []), []))
    assert drawn == sorted(set(drawn))
    assert len({tuple(map(len, shard)) for shard in shards}) == 1
    if drop:
        assert len(drawn) == n // count // 3 * 3 * count
    else:
        assert drawn == list(range(n))


def noisy(record, rng):
    return record | {"id": record["id"] + rng.random()}


VARIANTS = {
    "plain": lambda: data.loader(numbers(17), 3, seed=1),
    "listed": lambda: data.loader(Listed(numbers(17)), 3, seed=1),
    "threads": lambda: data.loader(Listed(numbers(17)), 3, seed=1, threads=2, prefetch=3),
    "device": lambda: data.loader(numbers(17), 3, seed=1, device=jax.devices()[0], prefetch=2),
    "sharded": lambda: data.loader(numbers(17), 3, seed=1, shard=(1, 2)),
    "random": lambda: data.loader(Listed(numbers(17)), 3, transform=noisy, seed=1, threads=2),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_resumed_anywhere_it_gives_the_same_batches(name):
    make = VARIANTS[name]
    whole = iter(make())
    positions, drawn = [], []
    for _ in range(13):
        positions.append(json.dumps(whole.get_state()))
        drawn.append(np.asarray(next(whole)["id"]).tolist())
    for at in (0, 1, 4, 5, 6, 11):
        stream = iter(make())
        next(stream)  # its own position must not matter
        stream.set_state(json.loads(positions[at]))
        assert [np.asarray(next(stream)["id"]).tolist() for _ in range(13 - at)] == drawn[at:]


@pytest.mark.parametrize("name", ["listed", "threads", "device"])
def test_a_position_holds_for_whatever_reads_the_batches(name):
    plain = iter(VARIANTS["plain"]())
    drawn, positions = [], [plain.get_state()]
    for _ in range(9):
        drawn.append(next(plain)["id"].tolist())
        positions.append(plain.get_state())
    for at in (0, 4, 5, 8):
        stream = iter(VARIANTS[name]())
        stream.set_state(positions[at])
        assert [np.asarray(next(stream)["id"]).tolist() for _ in range(9 - at)] == drawn[at:]
        assert stream.get_state() == positions[9]
    with pytest.raises(ValueError, match="the position of the data has exhausted, must have next_index"):
        plain.set_state({"exhausted": [0]})


def test_the_position_at_the_end_is_kept():
    make = lambda: iter(data.loader(numbers(7), 3, epochs=2, drop_remainder=False, seed=1))  # noqa: E731
    stream, again = make(), make()
    whole = ids(stream)
    again.set_state(stream.get_state())
    assert len(whole) == 6 and ids(again) == []


def test_random_numbers_follow_from_seed_and_place():
    """Not from threads, columns or the order of calls; every record of every epoch and shard has its own."""

    def drawn(source=numbers, **options):
        options = {"transform": noisy, "epochs": 2, "seed": 1} | options
        batches = list(data.loader(source(12), 3, **options))
        return [batch["id"] % 1 for batch in batches], [batch["id"] // 1 for batch in batches]

    noise, records = drawn()
    for options in ({"threads": 3}, {"source": lambda n: Listed(numbers(n))}):
        np.testing.assert_array_equal(drawn(**options), (noise, records))
    np.testing.assert_array_equal(records, ids(data.loader(numbers(12), 3, epochs=2, seed=1)))
    assert len(set(np.ravel(noise))) == 24
    shards = [np.ravel(drawn(shard=(i, 2))[0]) for i in range(2)]
    assert set(np.concatenate(shards)) == set(np.ravel(noise))
    assert not {*np.ravel(drawn(seed=2)[0])} & {*np.ravel(noise)}


def test_batches_on_the_device():
    device = jax.devices()[1]
    for batch in data.loader(numbers(12), 4, epochs=1, device=device):
        assert isinstance(batch["id"], jax.Array) and batch["id"].devices() == {device}
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("batch",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    for batch in data.loader(numbers(12), 4, epochs=1, device=sharding):
        assert batch["square"].sharding == sharding


WORKERS = """
    import json
    import numpy as np
    from fphys import data

    class Records:
        def __len__(self):
            return 23

        def __getitem__(self, index):
            return {"id": np.int64(index)}

    def noisy(record, rng):
        return {"id": record["id"] + rng.random()}

    def make(**options):
        return data.loader(Records(), 3, transform=noisy, seed=1, **options)

    if __name__ == "__main__":
        plain, stream = iter(make()), iter(make(workers=2))
        wanted = [next(plain)["id"].tolist() for _ in range(12)]
        found = []
        for i in range(12):
            if i == 5:
                position = json.dumps(stream.get_state())
            found.append(next(stream)["id"].tolist())
        resumed = []
        for workers in (3, 0):
            again = iter(make(workers=workers))
            again.set_state(json.loads(position))
            resumed.append([next(again)["id"].tolist() for _ in range(7)])
        print(json.dumps([wanted, found, resumed]))
"""


def test_workers_give_the_same_order_and_are_resumed_by_more_and_by_none(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(WORKERS))
    child = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=120, check=False
    )
    assert child.returncode == 0, child.stderr
    wanted, found, resumed = json.loads(child.stdout)
    assert found == wanted and resumed == [wanted[5:]] * 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 4, "workers": -1}, "workers=-1"),
        ({"batch_size": 4, "epochs": 0}, "epochs=0"),
        ({"batch_size": 4, "seed": -1}, "seed=-1: .* the others at least 0"),
        ({"batch_size": 4, "shard": (2, 2)}, r"shard=\(2, 2\)"),
        ({"batch_size": 11}, "more than the 10 records"),
        ({"batch_size": 3, "shard": (0, 3), "drop_remainder": False}, "10 records do not divide evenly among 3 shards"),
        ({"batch_size": 6, "shard": (0, 2)}, "more than the 5 records in each of 2 shards"),
    ],
)
def test_invalid_arguments_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        data.loader(numbers(10), **options)


def test_arrays_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="image has 3, label has 2"):
        data.Arrays(image=np.zeros((3, 2)), label=np.zeros(2))
    with pytest.raises(ValueError, match="none is given"):
        data.Arrays()
    with pytest.raises(ValueError, match="label has None"):
        data.Arrays(label=3)
    with pytest.raises(TypeError, match="label is masked"):
        data.Arrays(label=np.ma.masked_array([1, 2], [True, False]))


@pytest.mark.parametrize("options", [{}, {"threads": 2}, {"workers": 1}])
@pytest.mark.parametrize("listed", [False, True])
def test_a_record_that_is_not_finite_is_named_once(tmp_path, listed, options):
    another = 5 if "threads" in options else 9  # of two records, threads may read either first
    program = f"""
        import numpy as np
        from fphys import data

        def make():
            columns = {{"id": np.arange(12), "x": np.zeros((12, 3)), "y": np.zeros(12, np.float32)}}
            columns["x"][5, 1], columns["y"][{another}] = np.inf, np.nan
            source = data.Arrays(**columns)
            return source if not {listed} else [source[i] for i in range(12)]

        if __name__ == "__main__":
            for batch in data.loader(make(), 4, shuffle=False, epochs=3, **{options}):
                print(batch["id"].tolist())
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    child = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=120, check=False
    )
    assert child.returncode == 0, child.stderr
    assert len(child.stdout.splitlines()) == 9
    assert child.stderr.count("RuntimeWarning: record") == 1
    kind = "list" if listed else "Arrays"
    assert f"RuntimeWarning: record 5 of the data ({kind}) holds inf at ['x'][1]: " in child.stderr


def test_of_two_threads_that_found_a_record_one_tells():
    watched = Watched(numbers(10))
    with pytest.warns(RuntimeWarning, match="record 5 of"):
        watched._tell(5, "['x']", np.nan)
    watched._tell(9, "['x']", np.nan)  # a warning is an error here


def test_a_single_number_that_is_not_finite_is_named():
    records = [{"label": i, "y": np.float32(i), "name": str(i)} for i in range(4)]
    assert len(list(data.loader(Listed(records), 2, epochs=1))) == 2
    records[2]["y"] = np.float32("nan")
    with pytest.warns(RuntimeWarning, match=r"record 2 of the data \(Listed\) holds nan at \['y'\]: an update"):
        list(data.loader(Listed(records), 2, epochs=1))


@pytest.mark.parametrize("options", [{}, {"threads": 2}])
def test_a_transform_that_returns_nothing_is_named(options):
    """grain would leave such records out: for ever, if all are."""

    def forgotten(record, rng):
        record["id"] = record["id"] + 1

    with pytest.raises(TypeError, match=r"transform .*forgotten returned None, must return the new record"):
        next(iter(data.loader(numbers(10), 2, transform=forgotten, **options)))
    sometimes = functools.partial(lambda record, rng: record if record["id"] % 5 else None)
    with pytest.raises(TypeError, match="returned None"):
        list(data.loader(numbers(10), 2, transform=sometimes, epochs=1, **options))
