#pragma once
// Elimination of coupled bodies, dof by dof: islands.py says what for.
#include "six.h"

// Of a large function: a GPU's compiler would copy it to each of its calls, and take minutes.
#ifdef __CUDACC__
#define CUDA_NOINLINE WP_NOINLINE
#else
#define CUDA_NOINLINE
#endif

namespace fphys {
namespace {

// Memory that is handed out from its beginning
template <class T> struct Room {
    T *at, *end;
    CUDA_CALLABLE T* take(int count) { return (at += count) - count; }
    CUDA_CALLABLE bool has(long long count) const { return end - at >= count; }
};
template <class T, class number> CUDA_CALLABLE T* take(Room<number>& room, int count)
{
    return (T*)room.take(count * (int)(sizeof(T) / sizeof(number)));
}

// Bodies, some the children of others, in the order in which they are eliminated: a child before its parent. A body is
// coupled to some of those that come later. Its motion is x_d axis_d of its dofs, and that of its parent.
template <class number> struct Forest {
    int bodies, dofs, total;   // total: number of blocks
    int *parent;               // of each body, -1 for the world
    int *first, *count;        // its dofs
    int *order, *place;        // the bodies in order, and the place of each
    int *start, *coupled;      // where the later bodies that a body is coupled to are listed, and how many there are
    int *block;                // the first of its blocks, one for each listed body
    int *list;
    int *where, *pull;         // scratch; the first of its pulls
    Six<number>* axis;         // of each dof
    number* offset;            // of each body from its parent, three numbers
    number *diagonal, *inverse;  // of each dof: what is beside the bodies' inertia, and the inverse of its pivot
    Six<number>* gain;         // at which its force is felt by its own body
    Six<number>* own;          // six rows of each body
    Six<number>* blocks;       // six rows of each pair of coupled bodies, those of the earlier body
    Six<number>* pulls;        // at which a dof's force is felt by the other bodies
    Six<number>* felt;         // scratch

    // The block of an earlier and a later body
    CUDA_CALLABLE Six<number>* between(int a, int b) const
    {
        int e = 0;
        while (list[start[a] + e] != b) ++e;
        return blocks + 6 * (block[a] + e);
    }
};

// Bodies by their number of couplings
struct Queue {
    int *head, *next, *before, low;
    CUDA_CALLABLE void insert(int b, int key)
    {
        const int old = head[key];
        next[b] = old, before[b] = -1, head[key] = b;
        if (old >= 0) before[old] = b;
        if (key < low) low = key;
    }
    CUDA_CALLABLE void remove(int b, int key)
    {
        if (before[b] >= 0) next[before[b]] = next[b];
        else head[key] = next[b];
        if (next[b] >= 0) before[next[b]] = before[b];
    }
    CUDA_CALLABLE int least()
    {
        while (head[low] < 0) ++low;
        return head[low];
    }
};

// The body with the fewest couplings comes next, as its neighbours are then coupled to each other (minimum degree;
// George & Liu 1989). False if the room does not suffice.
template <class number>
CUDA_CALLABLE bool couple(Forest<number>& f, int edges, const int* one, const int* other, Room<int> room)
{
    const int m = f.bodies;
    int* const space = room.take(m);
    int* const children = room.take(m);
    int* const stamp = room.take(m);
    Queue queue{room.take(m), room.take(m), room.take(m), 0};
    f.list = room.at;
    if (!room.has(2LL * edges)) return false;
    for (int b = 0; b < m; ++b) f.coupled[b] = children[b] = 0, stamp[b] = queue.head[b] = -1;
    for (int e = 0; e < edges; ++e) ++f.coupled[one[e]], ++f.coupled[other[e]];
    for (int b = 0; b < m; ++b) {
        f.start[b] = (int)(room.take(f.coupled[b]) - f.list);
        space[b] = f.coupled[b], f.coupled[b] = 0;
        if (f.parent[b] >= 0) ++children[f.parent[b]];
    }
    for (int e = 0; e < edges; ++e) {
        const int a = one[e], b = other[e];
        f.list[f.start[a] + f.coupled[a]++] = b, f.list[f.start[b] + f.coupled[b]++] = a;
    }
    for (int b = 0; b < m; ++b) {  // each once
        int* const mine = f.list + f.start[b];
        int kept = 0;
        for (int k = 0; k < f.coupled[b]; ++k)
            if (stamp[mine[k]] != b) stamp[mine[k]] = b, mine[kept++] = mine[k];
        f.coupled[b] = kept;
        if (!children[b]) queue.insert(b, kept);
    }
    int mark = m;
    for (int step = 0; step < m; ++step) {
        const int b = queue.least(), p = f.parent[b], k = f.coupled[b];
        queue.remove(b, k);
        f.order[step] = b, f.place[b] = step;
        for (int e = p < 0 ? 0 : -1; e < k; ++e) {
            const int n = e < 0 ? p : f.list[f.start[b] + e];
            if (e >= 0 && n == p) continue;
            if (!children[n]) queue.remove(n, f.coupled[n]);
            int *mine = f.list + f.start[n], kept = 0, more = 0;
            stamp[n] = stamp[b] = ++mark;
            for (int i = 0; i < f.coupled[n]; ++i)
                if (mine[i] != b) stamp[mine[i]] = mark, mine[kept++] = mine[i];
            const int* const others = f.list + f.start[b];
            for (int i = 0; i < k; ++i) more += stamp[others[i]] != mark;
            const bool parent_too = p >= 0 && stamp[p] != mark;
            if (kept + more + 1 > space[n] && more + parent_too > 0) {
                const int wanted = 2 * (kept + more + 1);
                if (!room.has(wanted)) return false;
                int* const larger = room.take(wanted);
                for (int i = 0; i < kept; ++i) larger[i] = mine[i];
                mine = larger, f.start[n] = (int)(mine - f.list), space[n] = wanted;
            }
            for (int i = 0; i < k; ++i)
                if (stamp[others[i]] != mark) stamp[others[i]] = mark, mine[kept++] = others[i];
            if (p >= 0 && stamp[p] != mark) mine[kept++] = p;
            f.coupled[n] = kept;
            if (!children[n]) queue.insert(n, kept);
        }
        if (p >= 0 && --children[p] == 0) queue.insert(p, f.coupled[p]);
    }
    for (int b = 0; b < m; ++b) {  // in order
        int* const mine = f.list + f.start[b];
        for (int i = 1; i < f.coupled[b]; ++i) {
            const int n = mine[i];
            int j = i;
            for (; j > 0 && f.place[mine[j - 1]] > f.place[n]; --j) mine[j] = mine[j - 1];
            mine[j] = n;
        }
    }
    return true;
}

// Places of blocks and pulls; false if there are more than `most_blocks`, or the room does not suffice.
template <class number> CUDA_CALLABLE bool lay_out(Forest<number>& f, const int most_blocks, Room<number> room)
{
    long long blocks = 0, pulls = 0, most = 0;
    for (int i = 0; i < f.bodies; ++i) {
        const int b = f.order[i];
        const long long size = (long long)f.coupled[b] * f.count[b];
        f.block[b] = (int)blocks, f.pull[b] = (int)pulls;
        blocks += f.coupled[b], pulls += size;
        if (size > most) most = size;
        if (blocks > most_blocks || !room.has(8 * (6 * blocks + pulls + most))) return false;
    }
    f.total = (int)blocks;
    f.blocks = take<Six<number>>(room, (int)(6 * blocks));
    f.pulls = take<Six<number>>(room, (int)pulls);
    f.felt = take<Six<number>>(room, (int)most);
    return true;
}

// An order, and where room is short no couplings, which is reported
template <class number>
CUDA_CALLABLE bool arrange(
    Forest<number>& f, int most_blocks, int edges, const int* one, const int* other, Room<int> ints, Room<number> room)
{
    if (couple(f, edges, one, other, ints) && lay_out(f, most_blocks, room)) return true;
    f.total = 0;
    for (int b = 0; b < f.bodies; ++b) {
        f.order[b] = f.bodies - 1 - b, f.place[b] = f.bodies - 1 - b;
        f.start[b] = f.coupled[b] = f.block[b] = f.pull[b] = 0;
    }
    return false;
}

// to -= sum over dofs of the outer product of a dof's pull and what is felt
template <class number>
CUDA_CALLABLE void subtract_outer(int dofs, const Six<number>* pull, const Six<number>* felt, Six<number>* to)
{
    for (int i = 0; i < 6; ++i) {
        Six<number> row = to[i];
        for (int d = 0; d < dofs; ++d) row.add(-pull[d][i], felt[d]);
        to[i] = row;
    }
}

// Eliminate the bodies of `own`, `blocks` and `diagonal`; these are overwritten.
template <class number> CUDA_CALLABLE CUDA_NOINLINE void eliminate(const Forest<number>& f)
{
    for (int i = 0; i < f.bodies; ++i) {
        const int b = f.order[i], p = f.parent[b], k = f.coupled[b], dofs = f.count[b];
        const int* const others = f.list + f.start[b];
        Six<number>* const A = f.own + 6 * b;
        Six<number>* const B = f.blocks + 6 * f.block[b];
        Six<number>* const pulls = f.pulls + f.pull[b];
        for (int q = dofs - 1; q >= 0; --q) {
            const int d = f.first[b] + q;
            const Six<number> s = f.axis[d], felt = times(A, s);
            const number inverse = number(1) / (dot(s, felt) + f.diagonal[d]);
            const Six<number> gain = felt * inverse;
            f.gain[d] = gain, f.inverse[d] = inverse;
            for (int j = 0; j < 6; ++j) A[j].add(-felt[j], gain);
            for (int e = 0; e < k; ++e) {
                const Six<number> h = times(B + 6 * e, s);
                f.felt[e * dofs + q] = h, pulls[e * dofs + q] = h * inverse;
                for (int j = 0; j < 6; ++j) B[6 * e + j].add(-gain[j], h);
            }
        }
        for (int e = 0; e < k; ++e) {
            const int n = others[e];
            const Six<number>* const pull = pulls + e * dofs;
            subtract_outer(dofs, pull, f.felt + e * dofs, f.own + 6 * n);
            if (e + 1 == k) break;
            for (int j = 0; j < f.coupled[n]; ++j) f.where[f.list[f.start[n] + j]] = f.block[n] + j;
            for (int g = e + 1; g < k; ++g)
                subtract_outer(dofs, pull, f.felt + g * dofs, f.blocks + 6 * f.where[others[g]]);
        }
        if (p < 0) continue;
        const number* const r = f.offset + 3 * b;
        Six<number> turned[6];
        for (int j = 0; j < 6; ++j) turned[j] = nothing<number>();
        hand_on(A, r), add_block(A, true, turned), hand_on(turned, r);
        add_block(turned, false, f.own + 6 * p);
        for (int e = 0; e < k; ++e) {
            const int n = others[e];
            hand_on(B + 6 * e, r);
            if (n == p) add_block(B + 6 * e, false, f.own + 6 * p), add_block(B + 6 * e, true, f.own + 6 * p);
            else if (f.place[p] < f.place[n]) add_block(B + 6 * e, false, f.between(p, n));
            else add_block(B + 6 * e, true, f.between(n, p));
        }
    }
}

// x of the forces of the dofs, and the motions of the bodies; `load` is scratch
template <class number>
CUDA_CALLABLE CUDA_NOINLINE void substitute(
    const Forest<number>& f, const number* force, number* x, Six<number>* motion, Six<number>* load)
{
    for (int b = 0; b < f.bodies; ++b) load[b] = nothing<number>();
    for (int i = 0; i < f.bodies; ++i) {
        const int b = f.order[i], p = f.parent[b], k = f.coupled[b], dofs = f.count[b];
        const Six<number>* const pulls = f.pulls + f.pull[b];
        Six<number> felt = load[b];
        for (int q = dofs - 1; q >= 0; --q) {
            const int d = f.first[b] + q;
            const number left = force[d] - dot(f.axis[d], felt);
            x[d] = left;
            felt.add(left, f.gain[d]);
            for (int e = 0; e < k; ++e) load[f.list[f.start[b] + e]].add(left, pulls[e * dofs + q]);
        }
        if (p >= 0) load[p].add(1, handed_on(felt, f.offset + 3 * b));
    }
    for (int i = f.bodies - 1; i >= 0; --i) {
        const int b = f.order[i], p = f.parent[b], k = f.coupled[b], dofs = f.count[b];
        const Six<number>* const pulls = f.pulls + f.pull[b];
        Six<number> moved = p < 0 ? nothing<number>() : carried(motion[p], f.offset + 3 * b);
        for (int q = 0; q < dofs; ++q) {
            const int d = f.first[b] + q;
            number a = x[d] * f.inverse[d] - dot(f.gain[d], moved);
            for (int e = 0; e < k; ++e) a -= dot(pulls[e * dofs + q], motion[f.list[f.start[b] + e]]);
            x[d] = a;
            moved.add(a, f.axis[d]);
        }
        motion[b] = moved;
    }
}

}
}
