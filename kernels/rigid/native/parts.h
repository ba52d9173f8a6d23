#pragma once
// Which bodies, contacts and rows belong to which island: islands.py says what for.
#include "eliminate.h"

namespace fphys {
namespace {

// The bodies, contacts, links and rows of joints of every island, island by island
struct Parts {
    int count;
    int *bodies, *contacts, *links, *joints;  // where those of an island begin, and where those of the last one end
    int *body, *contact, *link, *joint;
    int* local;  // place of a body in its island
};

CUDA_CALLABLE inline int find(int* up, int b)
{
    while (up[b] != b) b = up[b] = up[up[b]];
    return b;
}

// Sort items by island: `of` is the island of each, or -1
CUDA_CALLABLE inline void sort(int islands, int items, const int* of, int* start, int* sorted)
{
    for (int i = 0; i <= islands; ++i) start[i] = 0;
    for (int k = 0; k < items; ++k)
        if (of[k] >= 0) ++start[of[k] + 1];
    for (int i = 0; i < islands; ++i) start[i + 1] += start[i];
    for (int k = 0; k < items; ++k)
        if (of[k] >= 0) sorted[start[of[k]]++] = k;
    for (int i = islands; i > 0; --i) start[i] = start[i - 1];
    start[0] = 0;
}

// The body of a pair's first or second geom, and the dimension of its contacts: collide/pairs.py
template <class Pairs> CUDA_CALLABLE int body_of(const int p, const int side, const Pairs& pairs)
{
    const int n = pairs.type.shape[0];
    const int low = p / n, high = p % n;
    const bool ordered = pairs.type.data[low] <= pairs.type.data[high];
    return pairs.geom_body.data[ordered == (side == 0) ? low : high];
}

template <class Pairs> CUDA_CALLABLE int dim_of(const int p, const Pairs& pairs)
{
    const int n = pairs.type.shape[0];
    return pairs.dim.data[pairs.group.data[p / n] * pairs.groups + pairs.group.data[p % n]];
}

CUDA_CALLABLE inline void join(int* up, const int a, const int b)
{
    const int i = find(up, a), j = find(up, b);
    if (i < j) up[j] = i;
    else up[i] = j;
}

// Islands are trees that contacts and links connect
template <class Tree, class Rows>
CUDA_CALLABLE CUDA_NOINLINE Parts divide(const int world, const Tree& t, const Rows& r, Room<int>& room)
{
    const int n = t.parent.shape[0], most = r.contact_pair.shape[1];
    const int single = r.row_dof.shape[0], several = r.link_row.shape[0];
    const int* const root = r.root.data;
    const int* const pair = part(r.contact_pair, world);
    const auto* const weight = part(r.weight, world);
    int* const up = room.take(n);
    int* const label = room.take(n);
    Parts parts;
    parts.local = room.take(n);
    int contacts = 0;
    while (contacts < most && pair[contacts] >= 0) ++contacts;
    int* const of = room.take(contacts);
    int* const joint_of = room.take(single);
    int* const link_of = room.take(several);
    for (int b = 0; b < n; ++b) up[b] = root[b], label[b] = -1;
    for (int c = 0; c < contacts; ++c) {
        of[c] = -1;
        if (!(weight[r.first + part(r.contact_row, world)[c]] > 0)) continue;
        const int a = root[body_of(pair[c], 0, r.pairs)], b = root[body_of(pair[c], 1, r.pairs)];
        of[c] = a ? a : b ? b : -1;
        if (a && b) join(up, a, b);
    }
    for (int l = 0; l < several; ++l) {
        link_of[l] = -1;
        if (!(weight[r.link_row.data[l]] > 0)) continue;
        for (int k = r.link_start.data[l]; k < r.link_start.data[l + 1]; ++k) {
            const int a = root[r.term_body.data[k]];
            if (a && link_of[l] >= 0) join(up, a, link_of[l]);
            if (a) link_of[l] = a;
        }
    }
    parts.count = 0;
    for (int b = 0; b < n; ++b)
        if (root[b] && find(up, root[b]) == b) label[b] = parts.count++;
    for (int b = 0; b < n; ++b)
        if (root[b]) label[b] = label[find(up, root[b])];
    for (int c = 0; c < contacts; ++c)
        if (of[c] >= 0) of[c] = label[of[c]];
    for (int l = 0; l < several; ++l)
        if (link_of[l] >= 0) link_of[l] = label[link_of[l]];
    for (int i = 0; i < single; ++i) joint_of[i] = weight[r.joint_row.data[i]] > 0 ? label[r.row_body.data[i]] : -1;
    parts.bodies = room.take(parts.count + 1), parts.body = room.take(n);
    parts.contacts = room.take(parts.count + 1), parts.contact = room.take(contacts);
    parts.joints = room.take(parts.count + 1), parts.joint = room.take(single);
    parts.links = room.take(parts.count + 1), parts.link = room.take(several);
    sort(parts.count, n, label, parts.bodies, parts.body);
    sort(parts.count, contacts, of, parts.contacts, parts.contact);
    sort(parts.count, single, joint_of, parts.joints, parts.joint);
    sort(parts.count, several, link_of, parts.links, parts.link);
    for (int i = 0; i < parts.count; ++i)
        for (int k = parts.bodies[i]; k < parts.bodies[i + 1]; ++k) parts.local[parts.body[k]] = k - parts.bodies[i];
    return parts;
}

}
}
