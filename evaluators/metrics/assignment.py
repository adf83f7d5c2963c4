"""Optimal one-to-one pairing over a sparse list of candidate pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import (
    breadth_first_order,
    connected_components,
    maximum_bipartite_matching,
    min_weight_full_bipartite_matching,
)

_LARGE_CELLS = 250_000  # cost matrices above this are first cut into independent parts
_DENSE_CELLS = 16_000_000  # largest cost matrix that is solved dense

Index = NDArray[np.int64]


def assign(rows: Index, columns: Index, costs: NDArray[np.float64]) -> Index:
    """Choose candidate pairs so that as many as possible are chosen and, among those choices, the total cost is least.

    The candidates fall apart into connected groups that are solved one by one: groups around a single row or column by
    their cheapest pair, the others by the Jonker-Volgenant algorithm (Crouse, *IEEE Trans. Aerosp. Electron. Syst.*
    52:1679, 2016). Large groups are cut further by leaving out pairs that no largest matching contains (Dulmage and
    Mendelsohn, *Can. J. Math.* 10:517, 1958), which keeps the result exact.

    Parameters
    ----------
    rows, columns : (k,) int64
        Candidate pairs, each at most once.
    costs : (k,) float64
        Finite cost of each pair, at least 0.

    Returns
    -------
    chosen : (c,) int64
        Positions of the chosen pairs, ascending. The same input gives the same choice; among equally good choices it
        depends on the order of the candidates.
    """
    if not len(rows):
        return np.empty(0, np.int64)
    _, row = np.unique(rows, return_inverse=True)
    _, column = np.unique(columns, return_inverse=True)
    chosen, groups = _easy_groups(row, column, costs, np.arange(len(rows)))
    large = [pairs for pairs in groups if _cells(row[pairs], column[pairs]) > _LARGE_CELLS]
    if large:
        groups = [pairs for pairs in groups if _cells(row[pairs], column[pairs]) <= _LARGE_CELLS]
        pairs = np.concatenate(large)
        more, parts = _easy_groups(row, column, costs, pairs[_useful(row[pairs], column[pairs])])
        chosen, groups = chosen + more, groups + parts
    chosen += [pairs[_solve(row[pairs], column[pairs], costs[pairs])] for pairs in groups]
    return np.sort(np.concatenate(chosen))


def _cells(row: Index, column: Index) -> int:
    return len(np.unique(row)) * len(np.unique(column))


def _easy_groups(
    row: Index, column: Index, costs: NDArray[np.float64], pairs: Index
) -> tuple[list[Index], list[Index]]:
    """Split pairs into connected groups; choose at once where a group is one pair or a star around one object.

    Returns
    -------
    chosen, groups : list of positions
        What is chosen already, and the groups that are left to solve.
    """
    row_degree, column_degree = np.bincount(row[pairs]), np.bincount(column[pairs])
    single = (row_degree[row[pairs]] == 1) & (column_degree[column[pairs]] == 1)
    chosen, pairs = [pairs[single]], pairs[~single]
    if not len(pairs):
        return chosen, []
    offset, nodes = len(row_degree), len(row_degree) + len(column_degree)
    links = (np.ones(len(pairs), bool), (row[pairs], offset + column[pairs]))
    component = connected_components(coo_array(links, shape=(nodes, nodes)), directed=False)[1]
    group = component[row[pairs]]
    order = np.lexsort((pairs, costs[pairs], group))  # groups together, the cheapest pair of each first
    pairs, group = pairs[order], group[order]
    heads = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    sizes = np.diff(heads, append=len(pairs))
    # In a star every pair holds the centre, so that its first pair does.
    star = (row_degree[row[pairs[heads]]] == sizes) | (column_degree[column[pairs[heads]]] == sizes)
    chosen.append(pairs[heads[star]])
    return chosen, [pairs[head : head + size] for head, size in zip(heads[~star], sizes[~star], strict=True)]


def _useful(row: Index, column: Index) -> NDArray[np.bool_]:
    """Mark the pairs that at least one matching of the largest size contains.

    Given one largest matching, a pair is in some largest matching if it lies on an alternating path from an unmatched
    row or column, or on an alternating cycle (a strongly connected component), or is matched itself.
    """
    n, m = int(row.max()) + 1, int(column.max()) + 1
    partner = maximum_bipartite_matching(csr_array((np.ones(len(row), bool), (row, column)), shape=(n, m)), "column")
    matched = partner[row] == column
    present = np.zeros(n, bool)
    present[row] = True
    lone_rows = np.flatnonzero(present & (partner < 0))
    lone_columns = np.setdiff1d(column, partner[partner >= 0])
    # Alternating walks as a directed graph: any pair leads from its row to its column, a matched one also back.
    tail = np.concatenate((row, n + column[matched]))
    head = np.concatenate((n + column, row[matched]))
    from_rows = _reached(tail, head, lone_rows, n + m)
    from_columns = _reached(head, tail, n + lone_columns, n + m)
    walks = csr_array((np.ones(len(tail), bool), (tail, head)), shape=(n + m, n + m))
    cycle = connected_components(walks, directed=True, connection="strong")[1]
    useful = matched | (cycle[row] == cycle[n + column])
    useful |= from_rows[row] & from_rows[n + column]
    useful |= from_columns[row] & from_columns[n + column]
    return np.asarray(useful)


def _reached(tail: Index, head: Index, sources: Index, nodes: int) -> NDArray[np.bool_]:
    """Mark the nodes of a directed graph that can be reached from any of the sources."""
    tail = np.concatenate((tail, np.full(len(sources), nodes)))  # one more node that leads to all sources
    head = np.concatenate((head, sources))
    graph = csr_array((np.ones(len(tail), bool), (tail, head)), shape=(nodes + 1, nodes + 1))
    reached = np.zeros(nodes + 1, bool)
    reached[breadth_first_order(graph, nodes, return_predecessors=False)] = True
    return reached


def _solve(row: Index, column: Index, costs: NDArray[np.float64]) -> Index:
    """Solve one connected group; return positions of the chosen pairs."""
    row_ids, row = np.unique(row, return_inverse=True)
    column_ids, column = np.unique(column, return_inverse=True)
    n, m = len(row_ids), len(column_ids)
    costs = costs / max(float(costs.max()), np.finfo(float).tiny)
    unmatched = 1.0 + min(n, m)  # dearer than all pairs of any choice together: one more pair always pays
    if n * m <= _DENSE_CELLS:
        table = np.full((n, m), unmatched)
        table[row, column] = costs
        matched_row, matched_column = linear_sum_assignment(table)
    else:
        # The sparse solver wants every row matched: each gets a column of its own that stands for "unmatched". It takes
        # a stored 0 for a missing pair, so that all costs are raised by 1, which changes no choice.
        entries = np.concatenate((costs + 1.0, np.full(n, unmatched + 1.0)))
        where = (np.concatenate((row, np.arange(n))), np.concatenate((column, m + np.arange(n))))
        matched_row, matched_column = min_weight_full_bipartite_matching(csr_array((entries, where), shape=(n, m + n)))
    # Both solvers also fill places where there is no pair: keep those that are one.
    keys = row * m + column
    order = np.argsort(keys)
    wanted = matched_row.astype(np.int64) * m + matched_column
    found: Index = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    real: NDArray[np.bool_] = (keys[found] == wanted) & (matched_column < m)
    return found[real]
