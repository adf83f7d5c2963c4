"""Segmentation building blocks: background, noise, object size, splitting and merging, outline refinement.

All lengths are pixels of the image at hand. No function knows a task; each takes its scale from an argument that
the caller measured on the data (:func:`object_radius`). Images are ``(y, x)`` float arrays, label images ``int32``
with background 0.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import edt
import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi
from skimage.filters import threshold_otsu
from skimage.measure import regionprops
from skimage.segmentation import watershed

Image = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int32]

_EIGHT = np.ones((3, 3), dtype=bool)
_ALL = slice(None)
# index pairs of vertical and horizontal neighbours
_PAIRS = (
    ((slice(None, -1), _ALL), (slice(1, None), _ALL)),
    ((_ALL, slice(None, -1)), (_ALL, slice(1, None))),
)


# --- intensities ------------------------------------------------------------------------------------------------


def background_surface(image: npt.ArrayLike, window: float, percentile: float = 20.0) -> Image:
    """Return the slowly varying background: a low percentile in windows, smoothed.

    Parameters
    ----------
    image
        ``(y, x)`` intensities with objects brighter than the background.
    window
        Side of the window in pixels; must be wider than the largest clump of objects.
    percentile
        Share of a window that is taken to be free of objects, in percent.

    Notes
    -----
    The image is reduced by block means first, which both averages noise (so that a low percentile is hardly biased)
    and makes the cost independent of the window.
    """
    data = np.asarray(image, dtype=np.float32)
    step = max(1, round(window / 8))
    rows, cols = (-(-size // step) for size in data.shape)
    padded = np.pad(data, ((0, rows * step - data.shape[0]), (0, cols * step - data.shape[1])), mode="edge")
    small = padded.reshape(rows, step, cols, step).mean(axis=(1, 3))
    side = max(3, round(window / step) | 1)
    low = ndi.percentile_filter(small, percentile, size=(min(side, rows | 1), min(side, cols | 1)), mode="nearest")
    low = ndi.gaussian_filter(low, side / 4, mode="nearest")
    return _enlarge(low, step, data.shape)


def flat_background(image: npt.ArrayLike, window: float, percentile: float = 15.0, rounds: int = 2) -> Image:
    """Return the background as the smoothed mean of pixels that hold no object.

    :func:`background_surface` starts; then whatever stands out (half of Otsu's threshold on the square root) is masked
    with a margin and the rest is averaged, twice. Follows a glow that is as wide as a few objects without eating into
    the objects themselves. Where no free pixel is near, the first estimate stays.
    """
    data = np.asarray(image, dtype=np.float32)
    background = background_surface(data, window, percentile)
    for _ in range(rounds):
        signal = ndi.gaussian_filter(data - background, 1.5)
        limit = 0.5 * otsu(np.sqrt(np.clip(signal, 0, None))) ** 2
        free = (~ndi.binary_dilation(signal > limit, iterations=3)).astype(np.float32)
        step = max(1, round(window / 40))
        weight = _block_sum(free, step)
        total = _block_sum(data * free, step)
        sigma = window / 6 / step
        weight = ndi.gaussian_filter(weight, sigma, mode="nearest") / step**2
        total = ndi.gaussian_filter(total, sigma, mode="nearest") / step**2
        mean = _enlarge(total / np.maximum(weight, 0.02), step, data.shape)
        background = np.where(_enlarge(weight, step, data.shape) > 0.02, mean, background).astype(np.float32)
    return background


def _block_sum(image: Image, step: int) -> Image:
    rows, cols = (-(-size // step) for size in image.shape)
    padded = np.pad(image, ((0, rows * step - image.shape[0]), (0, cols * step - image.shape[1])))
    return np.asarray(padded.reshape(rows, step, cols, step).sum(axis=(1, 3)), dtype=np.float32)


def _enlarge(small: Image, step: int, shape: tuple[int, ...]) -> Image:
    """Interpolate block values linearly to every pixel."""
    position = [(np.arange(size, dtype=np.float32) + 0.5) / step - 0.5 for size in shape]
    result = small
    for axis, where in enumerate(position):
        low = np.clip(np.floor(where).astype(int), 0, small.shape[axis] - 1)
        high = np.minimum(low + 1, small.shape[axis] - 1)
        part = np.clip(where - low, 0, 1).astype(np.float32)
        part = part[:, None] if axis == 0 else part[None, :]
        result = np.take(result, low, axis=axis) * (1 - part) + np.take(result, high, axis=axis) * part
    return np.asarray(result, dtype=np.float32)


def noise_sigma(image: npt.ArrayLike) -> float:
    """Return the standard deviation of pixel noise, from a mask that cancels planes and edges' first order.

    The mask is Immerkær's (1996); the median of absolute values stands in for his mean, so that sharp objects do not
    count as noise.
    """
    mask = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], dtype=np.float32)
    response = ndi.convolve(np.asarray(image, dtype=np.float32), mask, mode="reflect")
    return float(np.median(np.abs(response)) / 0.6745 / 6.0)


def otsu(values: npt.ArrayLike, default: float = np.inf) -> float:
    """Return Otsu's threshold, or ``default`` where all values are the same."""
    flat = np.asarray(values, dtype=np.float32).ravel()
    if flat.size == 0 or flat.min() == flat.max():
        return default
    return float(threshold_otsu(flat))


def label_medians(image: Image, labels: Labels) -> npt.NDArray[np.float64]:
    """Return the median of an image in each label, by label number; 0 where a label does not occur."""
    inside = labels > 0
    number, value = labels[inside], image[inside]
    result = np.zeros(int(labels.max(initial=0)) + 1)
    if number.size == 0:
        return result
    order = np.lexsort((value, number))
    number, value = number[order], value[order]
    start = np.flatnonzero(np.diff(number, prepend=0))
    count = np.diff(start, append=number.size)
    low, high = value[start + (count - 1) // 2], value[start + count // 2]
    result[number[start]] = (low.astype(np.float64) + high) / 2
    return result


# --- object size ------------------------------------------------------------------------------------------------


def object_radius(masks: Iterable[Mask], minimum: float = 2.0) -> float | None:
    """Return the typical inner radius of the objects in foreground masks, in pixels, or ``None`` without objects.

    The radius of an object is the largest distance to its outline. Convex components are single objects; they alone
    are measured where there are at least five, otherwise every component. The area-weighted median keeps specks from
    setting the scale.
    """
    convex: list[tuple[float, float]] = []
    every: list[tuple[float, float]] = []
    for mask in masks:
        labels, count = ndi.label(mask)
        if count == 0:
            continue
        inner = inner_radii(labels.astype(np.int32))[1:]
        for region, radius in zip(regionprops(labels), inner, strict=True):
            if radius < minimum:
                continue
            every.append((float(radius), float(region.area)))
            if region.solidity > 0.9:
                convex.append(every[-1])
    chosen = convex if len(convex) >= 5 else every
    if not chosen:
        return None
    radii, weights = np.array(sorted(chosen)).T
    cumulative = np.cumsum(weights)
    return float(radii[np.searchsorted(cumulative, cumulative[-1] / 2)])


def blob_radius(images: Iterable[tuple[Image, float]], smallest: float, largest: float) -> float | None:
    """Return the most common radius of bright blobs, by scale selection (Lindeberg 1998), or ``None`` without blobs.

    The scale-normalised Laplacian of a disc is largest at sigma = radius / sqrt(2). Each local maximum over place votes
    for its best scale with the weight of its response. Blobs in clumps vote as isolated ones do, which distances to an
    outline cannot achieve.

    Parameters
    ----------
    images
        Intensities and the response that a blob must have, usually a few standard deviations of the noise.
    smallest, largest
        Range of radii in pixels.
    """
    radii = np.geomspace(smallest / 1.3, largest * 1.3, 2 + round(2.5 * np.log2(largest / smallest)))
    votes = np.zeros(radii.size)
    for image, least in images:
        best = np.full(image.shape, -np.inf, dtype=np.float32)
        which = np.zeros(image.shape, dtype=np.int16)
        for index, sigma in enumerate(radii / np.sqrt(2)):
            step = max(1, int(sigma / 2))
            small = _block_sum(image, step) / step**2
            response = -ndi.gaussian_laplace(small, sigma / step, mode="nearest") * (sigma / step) ** 2
            response = _enlarge(response, step, image.shape)
            better = response > best
            best[better] = response[better]
            which[better] = index
        peak = (best == ndi.maximum_filter(best, size=2 * round(smallest) + 1)) & (best > least)
        votes += np.bincount(which[peak], weights=best[peak], minlength=radii.size)
    inner = votes[1:-1]  # the ends collect what is smaller or larger
    if inner.size == 0 or inner.max() == 0:
        return None
    mode = 1 + int(np.argmax(inner))
    near = slice(mode - 1, mode + 2)
    weight = votes[near] * np.array([mode > 1, True, mode < radii.size - 2])
    return float(np.exp(np.average(np.log(radii[near]), weights=weight)))


def ring_contrast(image: Image, labels: Labels, inner: float, outer: float) -> npt.NDArray[np.float64]:
    """Return how much brighter each object is than the ring from ``inner`` to ``outer`` pixels around it (medians).

    Index 0 is background. A blurred object is hardly brighter than its own close surroundings, so this tells what is
    in focus. Pixels of other objects do not count; an object that others enclose is compared with the ring around the
    whole clump.
    """
    distance, nearest = ndi.distance_transform_edt(labels == 0, return_indices=True)
    within = (distance > inner) & (distance <= outer)
    count = int(labels.max(initial=0)) + 1
    clumps, _ = ndi.label(labels > 0, structure=_EIGHT)

    def ring_median(regions: npt.NDArray[np.integer], size: int) -> tuple[npt.NDArray[np.float64], Mask]:
        ring = np.where(within, regions[tuple(nearest)], 0).astype(np.int32)
        median = np.zeros(size)
        found = label_medians(image, ring)
        median[: found.size] = found
        return median, np.bincount(ring.ravel(), minlength=size) > 0

    around, known = ring_median(labels, count)
    clump_of = np.zeros(count, dtype=np.int64)
    clump_of[labels[labels > 0]] = clumps[labels > 0]
    outside, _ = ring_median(clumps, int(clumps.max(initial=0)) + 1)
    return label_medians(image, labels) - np.where(known, around, outside[clump_of])


# --- splitting and merging --------------------------------------------------------------------------------------


def distance_inside(objects: Mask | Labels) -> Image:
    """Return the Euclidean distance to whatever is outside: the background and, in label images, other labels.

    The image border does not count as outside.
    """
    data = objects.astype(np.uint32) if objects.dtype != bool else objects
    return np.asarray(edt.edt(np.ascontiguousarray(data), black_border=False), dtype=np.float32)


def inner_radii(labels: Labels) -> npt.NDArray[np.float64]:
    """Return the largest distance to the outline in each label, by label number; 0 where a label does not occur."""
    result = np.zeros(int(labels.max(initial=0)) + 1)
    inside = labels > 0
    np.maximum.at(result, labels[inside], distance_inside(labels)[inside])
    return result


def split_touching(mask: Mask, landscape: Image, height: float) -> Labels:
    """Split a mask into the catchment basins of a landscape's maxima, where they are deep enough.

    Two basins stay apart if both maxima stand at least ``height`` above the highest pass between them (their dynamics);
    the result is that of a watershed on the h-maxima, but the passes are compared on the region graph, which is ten
    times faster than a grey-level reconstruction. Every component of the mask gets at least one region.
    """
    inside = np.where(mask, landscape, -np.inf).astype(np.float32)
    tops, count = ndi.label((inside == ndi.maximum_filter(inside, size=3)) & mask, structure=_EIGHT)
    basins = np.asarray(watershed(-landscape, tops, mask=mask), dtype=np.int32)
    if count < 2:
        return basins
    summit = np.full(count + 1, -np.inf)
    on_top = tops > 0
    np.maximum.at(summit, tops[on_top], landscape[on_top])
    passes = sorted(((highest, pair) for pair, (_, _, highest) in contacts(basins, landscape).items()), reverse=True)
    parent = list(range(count + 1))
    for highest, (one, two) in passes:
        one, two = _root(parent, one), _root(parent, two)
        if one != two and min(summit[one], summit[two]) - highest < height:
            low, high = (one, two) if summit[one] < summit[two] else (two, one)
            parent[low] = high
    return relabel(np.array([_root(parent, label) for label in range(count + 1)])[basins])


def relabel(labels: npt.NDArray[np.integer]) -> Labels:
    """Number the labels that occur 1, 2, 3, … in their own order; background stays 0."""
    result = np.zeros(labels.shape, dtype=np.int32)
    inside = labels > 0
    result[inside] = np.unique(labels[inside], return_inverse=True)[1] + 1
    return result


def _root(parent: list[int], label: int) -> int:
    while parent[label] != label:
        parent[label] = parent[parent[label]]
        label = parent[label]
    return label


def convex_hull(points: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the hull corners of integer ``(y, x)`` points, counter-clockwise (Andrew's monotone chain)."""
    ordered = sorted(map(tuple, points.tolist()))
    if len(ordered) < 3:
        return np.asarray(ordered, dtype=np.int64).reshape(-1, 2)

    def half(sequence: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        chain: list[tuple[int, int]] = []
        for y, x in sequence:
            while len(chain) > 1:
                (y0, x0), (y1, x1) = chain[-2], chain[-1]
                if (y1 - y0) * (x - x0) - (x1 - x0) * (y - y0) > 0:
                    break
                chain.pop()
            chain.append((y, x))
        return chain[:-1]

    return np.asarray(half(ordered) + half(reversed(ordered)), dtype=np.int64)


def hull_pixels(corners: npt.NDArray[np.int64]) -> float:
    """Return how many pixel centres lie in a hull with integer corners (Pick's theorem), so a convex object has
    solidity exactly 1 at any size."""
    if len(corners) < 3:
        if len(corners) < 2:
            return float(len(corners))
        return float(np.gcd(*np.abs(corners[1] - corners[0]))) + 1.0
    following = np.roll(corners, -1, axis=0)
    twice_area = abs(int(np.sum(corners[:, 0] * following[:, 1] - corners[:, 1] * following[:, 0])))
    edge = np.abs(following - corners)
    on_border = int(np.sum(np.gcd(edge[:, 0], edge[:, 1])))
    return twice_area / 2 + on_border / 2 + 1


def hull_width(corners: npt.NDArray[np.int64]) -> float:
    """Return the smallest Feret diameter of a hull, in pixels (pixel centres plus one pixel)."""
    if len(corners) < 3:
        return 1.0
    edges = np.roll(corners, -1, axis=0) - corners
    normals = np.stack([-edges[:, 1], edges[:, 0]], axis=1) / np.hypot(edges[:, 0], edges[:, 1])[:, None]
    offsets = corners @ normals.T
    return float(np.min(offsets.max(axis=0) - offsets.min(axis=0))) + 1.0


def region_outlines(labels: Labels) -> dict[int, npt.NDArray[np.int64]]:
    """Return for each label the hull corners of its pixels."""
    hulls: dict[int, npt.NDArray[np.int64]] = {}
    for label, box in enumerate(ndi.find_objects(labels), start=1):
        if box is None:
            continue
        inside = labels[box] == label
        rows = np.flatnonzero(inside.any(axis=1))
        first = inside[rows].argmax(axis=1)
        last = inside.shape[1] - 1 - inside[rows][:, ::-1].argmax(axis=1)
        ends = np.concatenate([np.stack([rows, first], axis=1), np.stack([rows, last], axis=1)])
        hulls[label] = convex_hull(ends + np.array([box[0].start, box[1].start]))
    return hulls


def contacts(labels: Labels, image: Image) -> dict[tuple[int, int], tuple[float, float, float]]:
    """Return for each pair of touching regions: contact length, mean and highest value of ``image`` along it.

    The length is that of a straight contact with as many vertical and horizontal pixel edges. The value at an edge is
    the lower one of its two pixels, so that the highest is the pass between both regions.
    """
    keys: list[npt.NDArray[np.int64]] = []
    values: list[npt.NDArray[np.float32]] = []
    base = int(labels.max()) + 1
    for first, second in _PAIRS:
        one, two = labels[first], labels[second]
        touch = (one != two) & (one > 0) & (two > 0)
        a, b = one[touch].astype(np.int64), two[touch].astype(np.int64)
        keys.append(np.minimum(a, b) * base + np.maximum(a, b))
        values.append(np.minimum(image[first][touch], image[second][touch]))
    upright = np.concatenate([np.ones(keys[0].size), np.zeros(keys[1].size)])
    key, value = np.concatenate(keys), np.concatenate(values)
    if key.size == 0:
        return {}
    order = np.argsort(key, kind="stable")
    key, value, upright = key[order], value[order], upright[order]
    start = np.flatnonzero(np.diff(key, prepend=-1))
    count = np.diff(start, append=key.size)
    vertical = np.add.reduceat(upright, start)
    length = np.hypot(vertical, count - vertical)
    mean = np.add.reduceat(value.astype(np.float64), start) / count
    highest = np.maximum.reduceat(value, start)
    rows = zip(key[start].tolist(), length.tolist(), mean.tolist(), highest.tolist(), strict=True)
    return {(code // base, code % base): (along, level, top) for code, along, level, top in rows}


def merge_convex(
    labels: Labels,
    signal: Image,
    *,
    solidity: float,
    valley: float,
    waist: float = 0.0,
    max_area: float = np.inf,
    max_width: float = np.inf,
) -> Labels:
    """Merge touching regions whose union looks like one object, best pair first.

    Parameters
    ----------
    labels
        An over-segmentation.
    signal
        Intensities in which a boundary between two objects shows as a valley (bright objects).
    solidity
        Share of the union's convex hull that the union must fill. Two equal discs whose centres are 1.5 radii apart
        reach 0.95, an ellipse 1.0.
    valley
        Lowest ratio of the mean signal on the contact to the dimmer region's median for which both still count as one.
    waist
        Shortest contact for which both still count as one, in inner diameters of the thinner region. A cut through an
        ellipse is longer than 1.2, the chord between two overlapping discs shorter than 1 until their centres are
        closer than 1.2 radii.
    max_area
        Largest area of a merged region, in pixels.
    max_width
        Largest width of a merged region (smallest Feret diameter of its hull), in pixels; for rods of one width.
    """
    count = int(labels.max())
    if count < 2:
        return labels
    area = np.bincount(labels.ravel(), minlength=count + 1).astype(float)
    median = label_medians(signal, labels)
    present = np.flatnonzero(area[1:] > 0) + 1
    hulls = region_outlines(labels)
    edges = {pair: (length, level) for pair, (length, level, _) in contacts(labels, signal).items()}
    inner = inner_radii(labels) if waist else np.zeros(count + 1)
    neighbours: dict[int, dict[int, tuple[float, float]]] = {int(label): {} for label in present}
    for (one, two), edge in edges.items():
        neighbours[one][two] = edge
        neighbours[two][one] = edge

    def rate(one: int, two: int) -> float:
        length, level = neighbours[one][two]
        if length < max(2.0, 2 * waist * min(inner[one], inner[two])) or area[one] + area[two] > max_area:
            return -1.0
        floor = min(median[one], median[two])
        if floor > 0 and level < valley * floor:
            return -1.0
        union = convex_hull(np.concatenate([hulls[one], hulls[two]]))
        if hull_width(union) > max_width:
            return -1.0
        return float(area[one] + area[two]) / hull_pixels(union)

    parent = list(range(count + 1))
    queue: list[tuple[float, int, int]] = []
    version = np.zeros(count + 1, dtype=int)

    def push(one: int, two: int) -> None:
        quality = rate(one, two)
        if quality >= solidity:
            low, high = min(one, two), max(one, two)
            heapq.heappush(queue, (-quality, low, high))
            stamps[(low, high)] = (version[low], version[high])

    stamps: dict[tuple[int, int], tuple[int, int]] = {}
    for one, two in edges:
        push(one, two)
    while queue:
        _, one, two = heapq.heappop(queue)
        if stamps.get((one, two)) != (version[one], version[two]) or parent[one] != one or parent[two] != two:
            continue
        weight = area[one] + area[two]
        median[one] = (area[one] * median[one] + area[two] * median[two]) / weight
        area[one] = weight
        hulls[one] = convex_hull(np.concatenate([hulls[one], hulls[two]]))
        inner[one] = max(inner[one], inner[two])
        parent[two] = one
        version[one] += 1
        for other, (length, level) in neighbours.pop(two).items():
            neighbours[other].pop(two)
            if other == one:
                continue
            held, held_level = neighbours[one].get(other, (0.0, 0.0))
            joint = (length + held, (length * level + held * held_level) / (length + held))
            neighbours[one][other] = joint
            neighbours[other][one] = joint
        for other in neighbours[one]:
            push(one, other)
    return np.array([_root(parent, label) for label in range(count + 1)], dtype=np.int32)[labels]


# --- whole objects ----------------------------------------------------------------------------------------------


def compact_objects(
    image: Image,
    radius: float,
    *,
    floor: float,
    solidity: float = 0.95,
    valley: float = 0.9,
    waist: float = 1.1,
    fraction: float = 0.55,
    shape_weight: float = 0.5,
    opening: float = 0.15,
    min_area: float = 0.15,
) -> Labels:
    """Segment bright, compact objects of about one size: nuclei, somata, or the inverse of dark bacteria.

    Global threshold and local mean decide what is foreground; a landscape of distance to the outline and blob response
    splits it; unions that look like one object are joined again; outlines are redrawn at half height; and the split is
    repeated once on the sharper outlines.

    Parameters
    ----------
    image
        Denoised intensities, objects bright, background near 0.
    radius
        Typical inner radius of an object.
    floor
        Smallest intensity of an object.
    solidity, valley, waist
        Limits of :func:`merge_convex`.
    fraction
        Where the outline lies between local background and the object's median; 0.5 is the physical edge under blur,
        a little more keeps touching objects apart.
    shape_weight
        Weight of the distance to the outline in the landscape, from 0 (brightness only) to 1 (shape only).
    opening
        Radius of the opening that removes thin attachments, as a share of ``radius``.
    min_area
        Smallest object, as a share of a disc of ``radius``.
    """
    root = np.sqrt(np.clip(image, 0, None))  # variance-stabilised: dim and bright objects weigh alike
    mask = (image > floor) & (root > ndi.gaussian_filter(root, radius))
    mask = opened(ndi.binary_fill_holes(mask), max(1.0, opening * radius))
    smallest = min_area * np.pi * radius**2
    if not mask.any():
        return np.zeros(image.shape, dtype=np.int32)
    blob = -np.asarray(ndi.gaussian_laplace(root, 0.6 * radius), dtype=np.float32)
    blob /= max(float(np.percentile(blob[mask], 90)), 1e-6)
    signal = image - local_floor(image, radius)
    reach = ndi.binary_dilation(mask, iterations=max(1, round(radius / 4)))

    def divide(area: Mask) -> Labels:
        shape = ndi.gaussian_filter(distance_inside(area), 0.15 * radius) / radius
        landscape = np.asarray(shape_weight * shape + (1 - shape_weight) * blob, dtype=np.float32)
        return split_touching(area, landscape, 0.05)

    def redraw(labels: Labels) -> Labels:
        basins = np.asarray(watershed(-image, labels, mask=reach), dtype=np.int32)
        return tidy(half_height(labels, signal, basins, fraction), smallest, smooth=1)

    labels = merge_convex(divide(mask), root, solidity=solidity, valley=valley, waist=waist)
    labels = redraw(tidy(labels, smallest, smooth=1))
    again = divide(labels > 0)
    cells = again.astype(np.int64) * (int(labels.max()) + 1) + labels
    cells[labels == 0] = 0
    joined = merge_convex(relabel(cells), root, solidity=solidity, valley=valley, waist=waist)
    return redraw(tidy(joined, smallest, smooth=1))


def opened(mask: Mask, radius: float) -> Mask:
    """Return the opening of a mask with a disc, by two distance transforms (cost independent of the radius)."""
    core = distance_inside(mask) > radius
    return np.asarray(mask & (distance_inside(~core) <= radius), dtype=bool)


def local_floor(image: Image, radius: float, percentile: float = 10.0) -> Image:
    """Return the brightness between objects: a low percentile within about two object diameters."""
    return background_surface(image, 4 * radius, percentile)


# --- outlines ---------------------------------------------------------------------------------------------------


def half_height(labels: Labels, signal: Image, basins: Labels, fraction: float = 0.5, rounds: int = 2) -> Labels:
    """Redraw each outline at a fraction of the object's own brightness, inside its own basin.

    Blur puts the edge of an object at half of its height, whatever its brightness; one threshold for all draws bright
    objects too large and dim ones too small.

    Parameters
    ----------
    labels
        Objects; each label marks the core from which the brightness is taken (median).
    signal
        Background-subtracted intensities (background 0).
    basins
        Region of influence of each label, same numbers.
    """
    current = labels
    for _ in range(rounds):
        height = np.full(int(basins.max(initial=0)) + 1, np.inf, dtype=np.float32)
        medians = label_medians(signal, current)
        present = np.flatnonzero(np.bincount(current.ravel(), minlength=medians.size)[1:]) + 1
        height[present] = fraction * medians[present]
        current = np.where(signal > height[basins], basins, 0).astype(np.int32)
    return current


def steepest_fraction(
    labels: Labels,
    signal: Image,
    basins: Labels,
    sigma: float,
    fractions: Iterable[float] = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65),
    tolerance: float = 0.01,
) -> float:
    """Return the fraction for :func:`half_height` at which the outlines run along the steepest edges.

    Sharp, flat objects have their edge near 0.4 to 0.5; blurred ones on a haze of their own above. The smallest
    fraction within ``tolerance`` of the best is taken, since people draw outlines just outside the steepest place.
    ``sigma`` (pixels) is the scale of the gradient.
    """
    slope = ndi.gaussian_gradient_magnitude(signal, sigma)
    strength: list[tuple[float, float]] = []
    for fraction in fractions:
        drawn = half_height(labels, signal, basins, fraction)
        strength.append((fraction, _edge_strength(drawn, slope, label_medians(signal, drawn))))
    best = max(value for _, value in strength)
    return next(fraction for fraction, value in strength if value >= (1 - tolerance) * best)


def _edge_strength(labels: Labels, slope: Image, height: npt.NDArray[np.float64]) -> float:
    """Return the mean slope, in units of the object's height, where an object's pixel meets a background pixel."""
    total, count = 0.0, 0
    for first, second in _PAIRS:
        for here, there in ((first, second), (second, first)):
            edge = (labels[here] > 0) & (labels[there] == 0)
            owner = labels[here][edge]
            total += float(np.sum((slope[here][edge] + slope[there][edge]) / 2 / np.maximum(height[owner], 1e-6)))
            count += owner.size
    return total / count if count else 0.0


def tidy(labels: Labels, min_area: float, *, smooth: int = 0, keep_numbers: bool = False) -> Labels:
    """Keep each label's largest piece, fill its holes and drop small ones; number what is left 1, 2, 3, …

    ``smooth`` is the radius of an opening that cuts thin spurs off (0 = none); ``keep_numbers`` leaves the labels as
    they were.
    """
    result = np.zeros_like(labels)
    number = 0
    structure = ndi.generate_binary_structure(2, 1)
    for label, box in enumerate(ndi.find_objects(labels), start=1):
        if box is None:
            continue
        own = labels[box] == label
        inside = own
        if smooth:
            wide = np.pad(inside, smooth, mode="edge")
            core = ndi.binary_opening(wide, structure, iterations=smooth)[smooth:-smooth, smooth:-smooth]
            inside = core if core.any() else inside
        pieces, count = ndi.label(inside)
        if count > 1:
            inside = pieces == 1 + np.argmax(np.bincount(pieces.ravel())[1:])
        inside = ndi.binary_fill_holes(inside)
        if inside.sum() < min_area:
            continue
        number += 1
        target = result[box]
        target[inside & (own | (labels[box] == 0)) & (target == 0)] = label if keep_numbers else number
    return result
