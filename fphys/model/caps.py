"""Limits on the total size of a model: sums over its documents, counting every copy, before MuJoCo sees them.

A sum that exceeds its cap is refused at the element that made it do so. Values that an element takes from a class are
bounded by the class that sets the most; what cannot be known without MuJoCo is counted too high, never too low.
"""

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import ModelError
from . import sizes

MAX_ELEMENTS = 100_000
"""Elements; heavy ones count several times, see ``_WEIGHTS``. Equals 12,000 bodies or geoms, or half as many copies of
a geom. A Franka arm counts 1,500, a body of 4,000 sites 30,000. So many load in ten seconds at worst."""
MAX_DOFS = 2**15
"""Degrees of freedom: those of 5,461 free bodies. A pile of 5,000 takes 0.5 GB to load, and 1.2 GB with its steps."""
MAX_TREE = 2**14
"""Degrees of freedom of a body in the world with all that hangs on it: 1 GB in MuJoCo's mass matrix if a chain."""
MAX_PIXELS = 2**29
"""Bytes of all textures and height fields: ten textures of 4096 x 4096. MuJoCo uses two or three times as much."""
MAX_TRIANGLES = 2**22
"""Triangles of all meshes, 1 kB each in MuJoCo: ten Franka arms as in Genesis. One STL may have 200,000."""
MAX_BYTES = 2**29
"""Bytes of all files that are not XML."""
MAX_NUMBERS = 2**24
"""Numbers in keyframes, user data, sensors, activations and histories: 10,000 keyframes of a humanoid are a million."""
MAX_ARENA = 2**34
"""Bytes of working memory that <size> asks for: untouched memory costs nothing. MuJoCo's largest example has 1 GB."""
MAX_MATCHES = 2**19
"""Copies of bodies, times elements that refer to bodies: MuJoCo searches these for each copy, 13 us each."""
MAX_MUSCLE_STEPS = 2**27
"""Muscles without a lengthrange, times the steps that MuJoCo takes to find it, times elements: 0.5 us each."""

_CAPS = {
    "elements": (MAX_ELEMENTS, "elements (heavy ones count several times)", "use fewer, or fewer copies"),
    "dofs": (MAX_DOFS, "degrees of freedom", "use fewer joints"),
    "tree": (MAX_TREE, "degrees of freedom that hang on one another", "use fewer joints, or separate mechanisms"),
    "pixels": (MAX_PIXELS, "bytes of pictures and height fields", "make them smaller"),
    "triangles": (MAX_TRIANGLES, "triangles", "make the meshes coarser"),
    "bytes": (MAX_BYTES, "bytes in its files", "use smaller ones"),
    "numbers": (MAX_NUMBERS, "numbers of keyframes, user data, sensors and states", "use fewer"),
    "arena": (MAX_ARENA, "bytes of working memory", "leave <size> away, or ask for less"),
    "matches": (MAX_MATCHES, "pairs of a copy and an element that may refer to it", "use fewer copies"),
    "muscle steps": (MAX_MUSCLE_STEPS, "muscles x steps x elements", "give the muscles a lengthrange"),
}
_WEIGHTS: dict[str, float] = dict.fromkeys(("site", "camera", "light", "frame", "mesh"), 4)
_WEIGHTS |= dict.fromkeys(("body", "link", "geom", "collision", "visual", "attach"), 8)
_WEIGHTS |= {"default": 40, "replicate": 40}  # 17 kB each; even empty ones take time that grows with their square
_COPY = 8  # elements that each copy of a replicate counts for, besides its contents
_REFERRING = ("contact", "equality", "tendon", "actuator", "sensor", "deformable")
_DOFS = {"free": 6, "floating": 6, "ball": 3, "planar": 3}
_USER = {tag: f"nuser_{tag}" for tag in ("body", "geom", "site", "tendon", "actuator", "sensor")}
_USER |= {"joint": "nuser_jnt", "camera": "nuser_cam"}
_ARENA = {"nstack": 2**3, "nconmax": 2**10, "njmax": 2**12}  # about so many bytes each
_SUFFIXES = {letter: 2.0 ** (10 * (i + 1)) for i, letter in enumerate("kmgtpe")}
_IMPLICIT = 2**17  # triangles that a mesh of a plugin's distance function counts for: it takes 1.5 s
_FIELDS = 17  # most numbers that a sensor reports of one contact or ray
_LONG = 256  # characters; longer attributes are cut, except those that give sizes
_SIZED = frozenset(
    "count cellcount nrow ncol width height nchannel params num dim nsample actdim size resolution memory inttotal "
    "timestep value nkey nuserdata nstack nconmax njmax".split()
)


@dataclasses.dataclass(slots=True)
class Element:
    """An element of a document, reduced to what matters here."""

    tag: str
    attributes: dict[str, str]
    numbers: dict[str, int]  # how many numbers each long attribute holds
    line: int
    depth: int  # 0: the root
    files: list[list[Path]] = dataclasses.field(default_factory=list)  # for each file, all places where it exists
    parts: list["Part"] = dataclasses.field(default_factory=list)  # documents that it includes

    @property
    def title(self) -> str:
        return f'{self.tag} "{self.attributes["name"]}"' if "name" in self.attributes else f"<{self.tag}>"

    def count(self, name: str) -> int:
        """How many numbers an attribute holds."""
        return self.numbers[name] if name in self.numbers else len(self.attributes.get(name, "").split())


def element(tag: str, attributes: dict[str, str], line: int, depth: int) -> Element:
    long = [name for name, value in attributes.items() if len(value) > _LONG]
    return Element(
        tag,
        {name: value if name in _SIZED or name[:5] == "nuser" else value[:_LONG] for name, value in attributes.items()},
        {name: attributes[name].count(" ") + 1 for name in long},
        line,
        depth,
    )


def weight(own: Element) -> float:
    """How many elements this one counts for."""
    return _WEIGHTS.get(own.tag, 1.0)


@dataclasses.dataclass
class Part:
    """A document of a model."""

    label: str
    elements: list[Element]


def number(token: str) -> float:
    """A number as MuJoCo reads it, decimal or hexadecimal; ValueError if it is not one."""
    try:
        return float(token)
    except ValueError:
        try:
            return float.fromhex(token)
        except OverflowError:
            return math.inf


def product(text: str) -> float:
    """Product of all numbers in a text, each at least 1."""
    result = 1.0
    for token in text.split():
        try:
            result *= max(number(token), 1.0)
        except ValueError:
            pass  # not a number: MuJoCo's reader reports it
    return result


_Sums = defaultdict[str, float]


class _Place(NamedTuple):
    """An element at its place in the model, after includes."""

    element: Element
    label: str
    level: int  # 0: the root
    copies: float
    section: str  # the tag at level 1
    group: int  # which element of the section it belongs to
    default: bool  # whether it is inside <default>

    @property
    def kind(self) -> str:
        """Its tag, or the section's for tendons, actuators and sensors, which have many tags."""
        if self.section in ("tendon", "actuator", "sensor") and self.level < 3:
            return self.section if self.level == 2 else ""
        return self.element.tag


def check(part: Part) -> None:
    """Raise ModelError if a model, given by its first document, exceeds the caps."""
    try:
        model = _Model()
        total = model.total(part, ())
    except OSError as error:
        raise ModelError(f"{part.label}: a file that the model names cannot be read: {error}") from None
    users = {name: (1 + total[name]) * model.most[name] for name in _USER.values()}  # the world is a body too
    state = 1 + 3 * total["dofs"] + 7 * total["mocap"] + 2 * total["nuser_actuator"] + total["states"]
    tactile = 3 * total["triangles"] * total["tactile"]
    for cause, numbers in {**users, "keys": total["keys"] * state, "tactile": tactile}.items():
        model.add(total, {"numbers": numbers}, cause)
    model.add(total, {"matches": total["copies"] * total["references"]}, "copies")
    model.add(total, {"muscle steps": total["muscles"] * model.most["steps"] * total["elements"]}, "steps")


class _Model:
    """Sums over a model."""

    def __init__(self) -> None:
        self.most: defaultdict[str, float] = defaultdict(float, steps=1000)  # maxima, for what does not add up
        self._chief: dict[str, tuple[float, _Place]] = {}  # the largest contributor to each sum
        self._totals: dict[int, _Sums] = {}  # of sub-models already counted

    def add(self, total: _Sums, cost: Mapping[str, float], where: _Place | str) -> None:
        """Add an element's cost to the sums, or a cost derived from another sum, blamed on its largest contributor."""
        for name, amount in cost.items():
            total[name] += amount
            if isinstance(where, _Place) and amount >= self._chief.get(name, (0,))[0]:
                self._chief[name] = amount, where
            cap, what, cure = _CAPS.get(name, (math.inf, "", ""))
            if total[name] > cap:
                at = where if isinstance(where, _Place) else self._chief.get(where, self._chief["elements"])[1]
                raise ModelError(
                    f"{at.label}:{at.element.line}: {at.element.title}: the model has {total[name]:.10g} {what} in "
                    f"all, more than the {cap} that are read: {cure}"
                )

    def total(self, part: Part, above: tuple[int, ...]) -> _Sums:
        """Sums over a document with its includes, and over the sub-models that it attaches."""
        if id(part) in above:
            raise ModelError(f"{part.label}: the model is part of itself: take out the <model> that leads back to it")
        if id(part) in self._totals:
            return self._totals[id(part)]
        total: _Sums = defaultdict(float)
        models: dict[str, _Sums] = {}
        attached: set[str] = set()
        places = list(_unrolled(part, _root(part), {id(part)}, itertools.count(1)))
        classes, times, subtrees = _classes(places), _times(places), _Subtrees(places)
        tree = None  # the outermost body that is open
        for place in sorted(places, key=lambda place: place.section in _REFERRING):  # references to bodies come last
            tag, attributes = place.element.tag, place.element.attributes
            count = place.copies * times.get(place.group, 1) + total["own"] * (place.section in _REFERRING)
            subtrees.enter(place, total)
            if tree and place.level <= tree.level:
                tree = None
            if not tree and tag == "body":
                tree, total["tree"] = place, 0
            size = sum(max(path.stat().st_size for path in paths) for paths in place.element.files)
            self.add(total, {"bytes": size * count}, place)  # first: a file that is too large is not read
            cost = self._cost(place, classes)
            if tag == "attach" and "model" not in attributes:
                cost["own"] = 1  # possibly one more copy of each name
                for name, amount in subtrees.attach(attributes, total).items():
                    cost[name] = cost.get(name, 0) + amount
            cost["tree"] = cost.get("dofs", 0) / tree.copies if tree else cost.get("dofs", 0) * (tag == "joint")
            self.add(total, {name: amount * count for name, amount in cost.items()}, place)
            if tag == "model" and place.section == "asset":
                for sub in place.element.parts:
                    name = attributes.get("name") or sub.elements[0].attributes.get("model", "")
                    models[name] = self.total(sub, (*above, id(part)))
                    models[name]["tree"] = 0
                    self.add(total, models[name], place)
            elif tag == "attach" and "model" in attributes:
                name = attributes["model"]
                largest = max(models.values(), key=lambda own: own["elements"], default={})
                more = count - (name not in attached)  # one was already counted where the model was named
                attached.add(name)
                own = {k: amount * more for k, amount in models.get(name, largest).items()}
                own["tree"] = models.get(name, largest)["dofs"] * count / tree.copies if tree else 0
                self.add(total, own, place)
        self._totals[id(part)] = total
        return total

    def _cost(self, place: _Place, classes: dict[str, float]) -> dict[str, float]:
        """What an element adds to the sums, once; ``classes`` has the values that it may take from classes."""
        own, kind = place.element, place.kind
        get = own.attributes.get

        def largest(name: str, otherwise: str = "1") -> float:
            return product(own.attributes[name]) if name in own.attributes else max(classes[name], product(otherwise))

        cost = {"elements": weight(own)}
        if place.default:
            return cost
        if kind in _USER:
            user = _USER[kind]
            cost[user] = 1
            self._at_least(user, own.count("user") if "user" in own.attributes else classes["user"], place)
        if place.level == 2 and place.section in _REFERRING:
            cost["references"] = 1
        match kind:
            case "replicate":
                cost["copies"] = product(get("count", ""))
                cost["elements"] += _COPY * cost["copies"]
            case "attach":
                cost["copies"] = 1
            case "joint" if place.section not in _REFERRING:
                cost["dofs"] = _DOFS.get(get("type", ""), 1) if "type" in own.attributes else max(classes["joint"], 1)
            case "freejoint":
                cost["dofs"] = 6
            case "body":
                cost["mocap"] = get("mocap") == "true"
            case "camera":
                self._at_least("rays", largest("resolution"), place)
            case "flexcomp":
                nodes = product(get("count", "10 10 10")) + 8 * product(get("cellcount", "")) + own.count("point")
                cost |= {"triangles": _triangles(own), "elements": 8 * nodes, "dofs": 3 * nodes}
            case "mesh" | "skin" | "flex":
                cost["triangles"] = _triangles(own)
            case "plugin" if place.section == "asset":
                cost["triangles"] = _IMPLICIT
            case "texture":
                cost["pixels"] = _texture(own, largest)
            case "hfield":
                cost["pixels"] = _heights(own)
            case "actuator":
                cost |= {"states": largest("actdim"), "numbers": 2 * largest("nsample")}
                cost["muscles"] = "lengthrange" not in own.attributes and (classes["muscle"] > 0 or _is_muscle(own))
            case "sensor":
                cost["tactile"] = own.tag == "tactile"
                rays = self.most["rays"] if "camera" in own.attributes else 1
                size = product(get("dim", "")) * product(get("num", "")) * rays * _FIELDS
                cost["numbers"] = size * (1 + product(get("nsample", "")))
            case "config":
                cost["numbers"] = product(get("value", "")) * 8 if get("key") == "size" else 0
            case "numeric":
                cost["numbers"] = product(get("size", "")) + own.count("data")
            case "key":
                cost["keys"] = 1
            case "lengthrange":
                steps = _float(get("inttotal"), 10) / max(_float(get("timestep"), 0.01), 1e-300)
                self._at_least("steps", steps, place)
                classes["muscle"] += get("mode") == "all"
            case "size":
                cost |= {"keys": product(get("nkey", "")), "numbers": product(get("nuserdata", ""))}
                cost["arena"] = sum(product(get(name, "")) * each for name, each in _ARENA.items()) + _memory(own)
                for user in _USER.values():
                    self._at_least(user, product(get(user, "")), place)
        return cost

    def _at_least(self, name: str, amount: float, place: _Place) -> None:
        if amount > self.most[name]:
            self.most[name], self._chief[name] = amount, (math.inf, place)


def _texture(own: Element, largest: Callable[..., float]) -> float:
    """Bytes of a texture; it has six sides unless it is known to have one."""
    channels, width, height = largest("nchannel", "3"), largest("width"), largest("height")
    kind = own.attributes.get("type")
    if own.files:
        sides = 1 if kind == "2d" else max(6 / largest("gridsize"), 1)
        return sum(max(sizes.texture(path, channels, sides, MAX_PIXELS) for path in paths) for paths in own.files)
    flat, cube = width * height, 6 * width * width
    return channels * (flat if kind == "2d" else cube if kind else max(flat, cube))


def _heights(own: Element) -> float:
    """Bytes of a height field: twice its floats."""
    if not own.files:
        return 8 * product(own.attributes.get("nrow", "")) * product(own.attributes.get("ncol", ""))
    return sum(max(sizes.heights(path, MAX_PIXELS) for path in paths) for paths in own.files)


def _triangles(own: Element) -> float:
    """Triangles or vertices of a mesh, skin or flex, whichever are more."""
    arrays = max(own.count(name) for name in ("vertex", "face", "element", "point")) / 3
    params = own.attributes.get("params", "").split()[:2]
    built = 8 * max(product(" ".join(params)), product(" ".join(params[:1] * 2))) if "builtin" in own.attributes else 0
    kind = own.attributes.get("content_type", "")
    files = [[sizes.triangles(path, kind, MAX_TRIANGLES) for path in paths] for paths in own.files]
    return arrays + built + sum(map(max, files))


def _is_muscle(own: Element) -> bool:
    """Whether MuJoCo computes an actuator's lengthrange."""
    return own.tag == "muscle" or not {"muscle", "user"}.isdisjoint(own.attributes.values())


def _memory(own: Element) -> float:
    """Bytes of <size memory="64M">."""
    text = own.attributes.get("memory", "").strip().lower()
    return product(text.rstrip("kmgtpe")) * _SUFFIXES.get(text[-1:], 1.0)


def _float(text: str | None, otherwise: float) -> float:
    try:
        return number(text) if text else otherwise
    except ValueError:
        return otherwise  # not a number: MuJoCo's reader reports it


def _root(part: Part) -> _Place:
    return _Place(Element("", {}, {}, 0, -1), part.label, -1, 1.0, "", 0, False)


def _unrolled(part: Part, parent: _Place, seen: set[int], groups: Iterator[int]) -> Iterator[_Place]:
    """The elements of a document in place, included ones instead of their <include>; each document once."""
    outermost = min(parent.level, 0)  # depth of the parent's stand-in: it replaces an included root
    stack = [(outermost, parent)]
    for own in part.elements:
        if own.depth <= outermost:
            continue
        while stack[-1][0] >= own.depth:
            stack.pop()
        up = stack[-1][1]
        if own.tag == "include":
            for nested in own.parts:
                if id(nested) not in seen:  # MuJoCo refuses a second time
                    seen.add(id(nested))
                    yield from _unrolled(nested, up, seen, groups)
            continue
        level = up.level + 1
        copies = up.copies * (product(up.element.attributes.get("count", "")) if up.element.tag == "replicate" else 1)
        section = own.tag if level == 1 else up.section
        group = next(groups) if level == 2 else up.group
        place = _Place(own, part.label, level, copies, section, group, up.default or own.tag == "default")
        stack.append((own.depth, place))
        yield place


def _classes(places: list[_Place]) -> defaultdict[str, float]:
    """The largest value of each attribute in any class."""
    most: defaultdict[str, float] = defaultdict(float)
    for own in (place.element for place in places if place.default):
        found = {name: product(value) for name, value in own.attributes.items() if name in _SIZED}
        found["user"] = own.count("user")
        found["muscle"] = _is_muscle(own)
        if own.tag == "joint":
            found["joint"] = _DOFS.get(own.attributes.get("type", ""), 1)
        for name, amount in found.items():
            most[name] = max(most[name], amount)
    return most


def _times(places: list[_Place]) -> dict[int, float]:
    """How often the elements of each group are copied because they refer to something that is copied."""
    copied: dict[str, float] = {}
    for place in places:
        if place.copies > 1 and (name := place.element.attributes.get("name")):
            copied[name] = max(copied.get(name, 1), place.copies)
    least = max((place.copies for place in places if place.element.tag == "attach"), default=1)
    times: dict[int, float] = {}
    for place in places:
        if place.level > 1 and place.section in _REFERRING:
            found = [copied.get(value, 1) for value in place.element.attributes.values()]
            times[place.group] = max(times.get(place.group, least), *found, 1)
    return times


def _less(total: _Sums, before: Mapping[str, float]) -> dict[str, float]:
    return {name: amount - before.get(name, 0) for name, amount in total.items()}


class _Subtrees:
    """What bodies and frames add to the sums, for documents that attach some of them to themselves."""

    def __init__(self, places: list[_Place]) -> None:
        self._needed = any(p.element.tag == "attach" and "model" not in p.element.attributes for p in places)
        self._open: list[tuple[int, str, Mapping[str, float]]] = []
        self._done: dict[str, Mapping[str, float]] = {}

    def enter(self, place: _Place, total: _Sums) -> None:
        while self._open and self._open[-1][0] >= place.level:
            _, name, before = self._open.pop()
            self._done[name] = _less(total, before)
        if self._needed and place.element.tag in ("body", "frame"):
            self._open.append((place.level, place.element.attributes.get("name", ""), total.copy()))

    def attach(self, attributes: dict[str, str], total: _Sums) -> Mapping[str, float]:
        """What the attached body or frame adds: the whole total if it is not known."""
        name = attributes.get("body") or attributes.get("frame", "")
        before = next((before for _, opened, before in self._open if opened == name), None)
        size = _less(total, before) if before is not None else self._done.get(name, dict(total))
        self._done[attributes.get("prefix", "") + name] = size
        return size
