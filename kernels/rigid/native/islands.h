#pragma once
// Constraints of one island after another: islands.py says what for.
#include "cone.h"
#include "parts.h"

namespace fphys {
namespace {

// An island with a copy of its numbers, one after another
template <class number> struct Island {
    Forest<number> f;
    Six<number>*mass, *motion, *load;  // of each body: six rows; its motion; the load on it
    int* dof;                          // of each dof, its place in the world
    number* armature;                  // beside the bodies' inertia
    int joints, links, contacts, rows;  // rows of joints come first, then those of links, then those of contacts
    int* joint_dof;
    number* joint_entry;
    int *link_start, *link_body;       // the bodies whose motions a link's row is of
    Six<number>* link_side;
    int *dim, *row, *one, *other;      // of each contact: the first row; the bodies, -1 for the world
    int* zone;                         // where the errors of a contact with an elliptic cone are, -1 for other contacts
    number ratio;                      // root of impratio
    number* steep;                     // the weights of the cones' rows, whose own are 0
    number* curve;                     // the cones' second derivatives, 36 numbers of each contact
    number* mu;                        // five of each
    Six<number>* side;                 // as many rates of its first body as its dimension, then those of its second
    int edges;                         // pairs of moving bodies that contacts and links couple
    int *edge_one, *edge_other;
    bool coupled;                      // whether the bodies are eliminated with what couples them
    number *weight, *reference, *low, *high, *error, *change, *force;  // of each row
    int* inside;                       // whether its force is within its bounds
    number *search, *gradient;         // of each dof
    number *residual, *preconditioned, *direction, *product;

    template <class Tree, class Inertia, class Rows>
    CUDA_CALLABLE CUDA_NOINLINE Island(
        const int world, const Tree& t, const Inertia& m, const Rows& r, const Parts& parts, const int island,
        Room<int> ints, Room<number> room)
    {
        const int* const body = parts.body + parts.bodies[island];
        const int n = f.bodies = parts.bodies[island + 1] - parts.bodies[island];
        const auto* const axis = part(t.axis, world);
        f.parent = ints.take(n), f.first = ints.take(n), f.count = ints.take(n), f.order = ints.take(n);
        f.place = ints.take(n), f.start = ints.take(n), f.coupled = ints.take(n), f.block = ints.take(n);
        f.where = ints.take(n), f.pull = ints.take(n);
        f.dofs = 0;
        for (int i = 0; i < n; ++i) f.dofs += part(t.dofs, body[i])[1];
        const int nv = f.dofs;
        dof = ints.take(nv);
        f.axis = take<Six<number>>(room, nv), f.gain = take<Six<number>>(room, nv);
        f.own = take<Six<number>>(room, 6 * n), mass = take<Six<number>>(room, 6 * n);
        motion = take<Six<number>>(room, n), load = take<Six<number>>(room, n);
        f.offset = room.take(3 * n);
        f.diagonal = room.take(nv), f.inverse = room.take(nv), armature = room.take(nv);
        search = room.take(nv), gradient = room.take(nv), residual = room.take(nv), preconditioned = room.take(nv);
        direction = room.take(nv), product = room.take(nv);
        int d = 0;
        for (int i = 0; i < n; ++i) {
            const int b = body[i], p = t.parent.data[b], at = part(t.dofs, b)[0];
            f.parent[i] = r.root.data[p] ? parts.local[p] : -1;
            f.first[i] = d, f.count[i] = part(t.dofs, b)[1];
            for (int q = 0; q < f.count[i]; ++q, ++d) {
                dof[d] = at + q;
                f.axis[d] = six((const number*)(axis + at + q));
                armature[d] = part(m.diagonal, world)[at + q];
            }
            const number* const offset = (const number*)(part(t.offset, world) + b);
            for (int k = 0; k < 3; ++k) f.offset[3 * i + k] = offset[k];
            const number* const turn = (const number*)(part(m.turn, world) + b);
            const number* const mixed = (const number*)(part(m.mixed, world) + b);
            const number* const shift = (const number*)(part(m.shift, world) + b);
            for (int j = 0; j < 3; ++j) {
                Six<number> top = nothing<number>(), bottom = nothing<number>();
                for (int k = 0; k < 3; ++k) {
                    top.set(k, turn[3 * j + k]), top.set(3 + k, mixed[3 * j + k]);
                    bottom.set(k, mixed[3 * k + j]), bottom.set(3 + k, shift[3 * j + k]);
                }
                mass[6 * i + j] = top, mass[6 * i + 3 + j] = bottom;
            }
        }
        // rows
        const int* const joint = parts.joint + parts.joints[island];
        const int* const link = parts.link + parts.links[island];
        const int* const contact = parts.contact + parts.contacts[island];
        joints = parts.joints[island + 1] - parts.joints[island];
        links = parts.links[island + 1] - parts.links[island];
        contacts = parts.contacts[island + 1] - parts.contacts[island];
        dim = ints.take(contacts), row = ints.take(contacts), one = ints.take(contacts), other = ints.take(contacts);
        zone = ints.take(contacts), link_start = ints.take(links + 1);
        int terms = 0, pairs = contacts;
        for (int l = 0; l < links; ++l) {
            const int size = r.link_start.data[link[l] + 1] - r.link_start.data[link[l]];
            terms += size, pairs += size * (size - 1) / 2;
        }
        link_body = ints.take(terms), link_side = take<Six<number>>(room, terms);
        edge_one = ints.take(pairs), edge_other = ints.take(pairs);
        rows = joints + links, edges = 0;
        int sixes = 0;
        for (int c = 0; c < contacts; ++c) {
            dim[c] = dim_of(part(r.contact_pair, world)[contact[c]], r.pairs);
            row[c] = rows;
            zone[c] = r.elliptic && dim[c] > 1 ? TOP : -1;
            rows += dim[c] == 1 ? 1 : zone[c] == TOP ? dim[c] : 2 * (dim[c] - 1), sixes += 2 * dim[c];
        }
        joint_dof = ints.take(joints), joint_entry = room.take(joints);
        inside = ints.take(rows);
        weight = room.take(rows), reference = room.take(rows), low = room.take(rows), high = room.take(rows);
        error = room.take(rows), change = room.take(rows), force = room.take(rows), steep = room.take(rows);
        curve = r.elliptic ? room.take(36 * contacts) : nullptr;
        const number impratio = *part(r.impratio, world);
        ratio = sqrt(impratio > number(1e-15) ? impratio : number(1e-15));
        mu = room.take(5 * contacts);
        side = take<Six<number>>(room, sixes);
        auto copy = [&](int from, int to) {
            weight[to] = part(r.weight, world)[from], reference[to] = part(r.reference, world)[from];
            const number* const bounds = (const number*)(part(r.bound, world) + from);
            low[to] = bounds[0], high[to] = bounds[1], inside[to] = 0;
        };
        for (int i = 0; i < joints; ++i) {
            const int b = r.row_body.data[joint[i]];
            joint_dof[i] = f.first[parts.local[b]] + r.row_dof.data[joint[i]] - part(t.dofs, b)[0];
            joint_entry[i] = part(r.jacobian, world, r.joint_row.data[joint[i]])[0];
            copy(r.joint_row.data[joint[i]], i);
        }
        link_start[0] = 0;
        for (int l = 0; l < links; ++l) {
            const int from = r.link_row.data[link[l]], begin = link_start[l];
            int end = begin;
            copy(from, joints + l);
            for (int k = r.link_start.data[link[l]]; k < r.link_start.data[link[l] + 1]; ++k) {
                const int b = r.term_body.data[k], column = r.term_column.data[k];
                if (!r.root.data[b]) continue;
                const number scale = column < 0 ? 1 : part(r.jacobian, world, from)[column];
                const number* const base = (const number*)(part(r.base, world) + r.term_base.data[k]);
                int at = begin;
                while (at < end && link_body[at] != parts.local[b]) ++at;
                if (at == end) link_body[end] = parts.local[b], link_side[end++] = nothing<number>();
                link_side[at].add(scale, six(base));
            }
            link_start[l + 1] = end;
            for (int i = begin; i < end; ++i)
                for (int j = begin; j < i; ++j) edge_one[edges] = link_body[i], edge_other[edges++] = link_body[j];
        }
        Six<number>* J = side;
        for (int i = 0; i < contacts; ++i) {
            const int c = contact[i], p = part(r.contact_pair, world)[c];
            const int start = r.first + part(r.contact_row, world)[c];
            const int size = i + 1 < contacts ? row[i + 1] : rows;
            for (int k = row[i]; k < size; ++k) {
                copy(start + k - row[i], k);
                steep[k] = weight[k];
                if (zone[i] >= 0) weight[k] = 0;
            }
            const int at = find_pair(p, part(r.candidate, world), r.candidate.shape[1]);
            const number* const friction = (const number*)(part(r.friction, world) + at);
            for (int k = 0; k < 5; ++k) mu[5 * i + k] = friction[k];
            const number* const frame = (const number*)(part(r.frame, world) + c);
            const number* const pos = (const number*)(part(r.pos, world) + c);
            for (int s = 0; s < 2; ++s) {
                const int b = body_of(p, s, r.pairs);
                (s ? other : one)[i] = r.root.data[b] ? parts.local[b] : -1;
                const number* const origin = (const number*)(part(r.frame_pos, world) + r.body_frame.data[b]);
                const number sign = s ? 1 : -1, x = pos[0] - origin[0], y = pos[1] - origin[1], z = pos[2] - origin[2];
                for (int k = 0; k < dim[i]; ++k) {
                    const number* const e = frame + 3 * (k % 3);
                    const number turn[6] = {
                        y * e[2] - z * e[1], z * e[0] - x * e[2], x * e[1] - y * e[0], e[0], e[1], e[2]};
                    const number spin[6] = {e[0], e[1], e[2], 0, 0, 0};
                    *J++ = six(k < 3 ? turn : spin) * sign;
                }
            }
            if (one[i] >= 0 && other[i] >= 0) edge_one[edges] = one[i], edge_other[edges++] = other[i];
        }
        coupled = arrange(f, r.couplings, edges, edge_one, edge_other, ints, room);
    }

    // Where a pair stands among the candidates, which ascend and end with -1s
    CUDA_CALLABLE static int find_pair(int p, const int* candidate, int count)
    {
        int low = 0;
        if (p < count && candidate[p] == p) return p;
        while (low < count) {
            const int middle = (low + count) / 2;
            if (candidate[middle] >= 0 && candidate[middle] < p) low = middle + 1;
            else count = middle;
        }
        return low;
    }


    // The motions of the bodies for rates of the dofs
    CUDA_CALLABLE void spread(const number* x)
    {
        for (int b = 0; b < f.bodies; ++b) {
            const int p = f.parent[b];
            Six<number> moved = p < 0 ? nothing<number>() : carried(motion[p], f.offset + 3 * b);
            for (int d = f.first[b]; d < f.first[b] + f.count[b]; ++d) moved.add(x[d], f.axis[d]);
            motion[b] = moved;
        }
    }

    // Momenta of the bodies for their motions, and what is beside the bodies' inertia
    CUDA_CALLABLE void resist(const number* x, number* out)
    {
        for (int b = 0; b < f.bodies; ++b) load[b] = times(mass + 6 * b, motion[b]);
        for (int d = 0; d < f.dofs; ++d) out[d] = armature[d] * x[d];
    }

    // Add the dofs' shares of the loads on the bodies
    CUDA_CALLABLE void collect(number* out)
    {
        for (int b = f.bodies - 1; b >= 0; --b) {
            for (int d = f.first[b]; d < f.first[b] + f.count[b]; ++d) out[d] += dot(f.axis[d], load[b]);
            if (f.parent[b] >= 0) load[f.parent[b]].add(1, handed_on(load[b], f.offset + 3 * b));
        }
    }

    // J x for the bodies' motions that x causes
    CUDA_CALLABLE CUDA_NOINLINE void rates(const number* x, number* out) const
    {
        for (int i = 0; i < joints; ++i) out[i] = joint_entry[i] * x[joint_dof[i]];
        for (int l = 0; l < links; ++l) {
            number u = 0;
            for (int k = link_start[l]; k < link_start[l + 1]; ++k) u += dot(link_side[k], motion[link_body[k]]);
            out[joints + l] = u;
        }
        const Six<number>* J = side;
        for (int c = 0; c < contacts; J += 2 * dim[c++]) {
            number u[6];
            for (int k = 0; k < dim[c]; ++k) {
                u[k] = one[c] < 0 ? 0 : dot(J[k], motion[one[c]]);
                if (other[c] >= 0) u[k] += dot(J[dim[c] + k], motion[other[c]]);
            }
            number* const to = out + row[c];
            if (dim[c] == 1 || zone[c] >= 0) {
                for (int k = 0; k < dim[c]; ++k) to[k] = u[k];
                continue;
            }
            for (int k = 1; k < dim[c]; ++k) {
                const number along = mu[5 * c + k - 1] * u[k];
                to[2 * k - 2] = u[0] + along, to[2 * k - 1] = u[0] - along;
            }
        }
    }

    // Add J^T s: that of joints to the dofs, that of contacts to the bodies' loads
    CUDA_CALLABLE CUDA_NOINLINE void push(const number* s, number* out)
    {
        for (int i = 0; i < joints; ++i) out[joint_dof[i]] += s[i] * joint_entry[i];
        for (int l = 0; l < links; ++l)
            for (int k = link_start[l]; k < link_start[l + 1]; ++k) load[link_body[k]].add(s[joints + l], link_side[k]);
        const Six<number>* J = side;
        for (int c = 0; c < contacts; J += 2 * dim[c++]) {
            const number* const from = s + row[c];
            number u[6];
            const bool straight = dim[c] == 1 || zone[c] >= 0;
            u[0] = straight ? from[0] : 0;
            for (int k = 1; k < dim[c]; ++k) {
                if (straight) {
                    u[k] = from[k];
                    continue;
                }
                u[0] += from[2 * k - 2] + from[2 * k - 1];
                u[k] = mu[5 * c + k - 1] * (from[2 * k - 2] - from[2 * k - 1]);
            }
            for (int k = 0; k < dim[c]; ++k) {
                if (one[c] >= 0) load[one[c]].add(u[k], J[k]);
                if (other[c] >= 0) load[other[c]].add(u[k], J[dim[c] + k]);
            }
        }
    }

    // to += J_a^T K J_b for the rates along one or two bodies; K has only a first row, a first column and a diagonal
    CUDA_CALLABLE CUDA_NOINLINE static void add_stiffness(
        int dim, const number* across, const number* own, const Six<number>* a, const Six<number>* b, Six<number>* to)
    {
        Six<number> felt[6];
        felt[0] = b[0] * own[0];
        for (int k = 1; k < dim; ++k) {
            felt[0].add(across[k], b[k]);
            felt[k] = b[0] * across[k];
            felt[k].add(own[k], b[k]);
        }
        for (int i = 0; i < 6; ++i) {
            Six<number> line = to[i];
            for (int k = 0; k < dim; ++k) line.add(a[k][i], felt[k]);
            to[i] = line;
        }
    }

    // The same for any symmetric K, which has rows of six
    CUDA_CALLABLE CUDA_NOINLINE static void add_curve(
        int dim, const number* K, const Six<number>* a, const Six<number>* b, Six<number>* to)
    {
        for (int k = 0; k < dim; ++k) {
            Six<number> felt = b[0] * K[6 * k];
            for (int j = 1; j < dim; ++j) felt.add(K[6 * k + j], b[j]);
            for (int i = 0; i < 6; ++i) to[i].add(a[k][i], felt);
        }
    }

    // A link's stiffness, along each of its bodies and between every two
    CUDA_CALLABLE void add_link(const int l)
    {
        const number w = weight[joints + l];
        for (int i = link_start[l]; i < link_start[l + 1]; ++i) {
            const int a = link_body[i];
            add_curve(1, &w, link_side + i, link_side + i, f.own + 6 * a);
            for (int j = link_start[l]; j < i && coupled; ++j) {
                const int b = link_body[j];
                if (f.place[a] < f.place[b]) add_curve(1, &w, link_side + i, link_side + j, f.between(a, b));
                else add_curve(1, &w, link_side + j, link_side + i, f.between(b, a));
            }
        }
    }

    // Eliminate the bodies from H = M + J^T s'' J, or from what is left of it without what couples them
    CUDA_CALLABLE CUDA_NOINLINE void factorise()
    {
        for (int i = 0; i < 6 * f.bodies; ++i) f.own[i] = mass[i];
        for (int d = 0; d < f.dofs; ++d) f.diagonal[d] = armature[d];
        for (int i = 0; i < 6 * f.total; ++i) f.blocks[i] = nothing<number>();
        for (int i = 0; i < joints; ++i)
            if (inside[i]) f.diagonal[joint_dof[i]] += weight[i] * joint_entry[i] * joint_entry[i];
        for (int l = 0; l < links; ++l)
            if (inside[joints + l]) add_link(l);
        const Six<number>* J = side;
        for (int c = 0; c < contacts; J += 2 * dim[c++]) {
            const int *const acts = inside + row[c], n = dim[c], a = one[c], b = other[c];
            if (zone[c] == TOP) continue;
            if (zone[c] > 0) {
                const number* const K = curve + 36 * c;
                if (a >= 0) add_curve(n, K, J, J, f.own + 6 * a);
                if (b >= 0) add_curve(n, K, J + n, J + n, f.own + 6 * b);
                if (a < 0 || b < 0 || !coupled) continue;
                if (f.place[a] < f.place[b]) add_curve(n, K, J, J + n, f.between(a, b));
                else add_curve(n, K, J + n, J, f.between(b, a));
                continue;
            }
            const number* const w = weight + row[c];
            number own[6], across[6];
            own[0] = n == 1 && acts[0] ? w[0] : 0;
            for (int k = 1; k < n; ++k) {
                const number m = mu[5 * c + k - 1];
                const number plus = acts[2 * k - 2] ? w[2 * k - 2] : 0, minus = acts[2 * k - 1] ? w[2 * k - 1] : 0;
                own[0] += plus + minus, across[k] = m * (plus - minus), own[k] = m * m * (plus + minus);
            }
            if (!(own[0] > 0)) continue;
            if (a >= 0) add_stiffness(n, across, own, J, J, f.own + 6 * a);
            if (b >= 0) add_stiffness(n, across, own, J + n, J + n, f.own + 6 * b);
            if (a < 0 || b < 0 || !coupled) continue;
            if (f.place[a] < f.place[b]) add_stiffness(n, across, own, J, J + n, f.between(a, b));
            else add_stiffness(n, across, own, J + n, J, f.between(b, a));
        }
        eliminate(f);
    }

    CUDA_CALLABLE number product_of(const number* a, const number* b) const
    {
#pragma clang fp reassociate(on)
        number s = 0;
        for (int d = 0; d < f.dofs; ++d) s += a[d] * b[d];
        return s;
    }

    // s'' u of the rows, in the place of u
    CUDA_CALLABLE void stiffen(number* u) const
    {
        for (int i = 0; i < joints + links; ++i) u[i] = inside[i] ? weight[i] * u[i] : 0;
        for (int c = 0; c < contacts; ++c) {
            const int end = c + 1 < contacts ? row[c + 1] : rows;
            number felt[6];
            for (int i = 0; i < dim[c] && zone[c] >= 0; ++i) {
                felt[i] = 0;
                for (int j = 0; j < dim[c]; ++j) felt[i] += curve[36 * c + 6 * i + j] * u[row[c] + j];
            }
            for (int i = row[c]; i < end; ++i)
                u[i] = zone[c] >= 0 ? felt[i - row[c]] : inside[i] ? weight[i] * u[i] : 0;
        }
    }

    CUDA_CALLABLE Cone<number> cone(const int c) const
    {
        return {dim[c], mu[5 * c] / ratio, mu + 5 * c, steep + row[c]};
    }

    // H x = right, and the bodies' motions for x. Where the bodies were eliminated without what couples them, by
    // conjugate gradients, until `rest` of the right side is left (Hestenes & Stiefel 1952).
    CUDA_CALLABLE CUDA_NOINLINE void solve(const int sweeps, const number rest, const number* right, number* x)
    {
        if (coupled) {
            substitute(f, right, x, motion, load);
            return;
        }
        for (int d = 0; d < f.dofs; ++d) x[d] = 0, residual[d] = right[d];
        const number enough = rest * rest * product_of(right, right);
        substitute(f, residual, preconditioned, motion, load);
        for (int d = 0; d < f.dofs; ++d) direction[d] = preconditioned[d];
        number fall = product_of(residual, preconditioned);
        for (int sweep = 0; sweep < sweeps && fall > 0; ++sweep) {
            spread(direction);
            rates(direction, change);
            stiffen(change);
            resist(direction, product);
            push(change, product);
            collect(product);
            const number along = fall / product_of(direction, product);
            for (int d = 0; d < f.dofs; ++d) x[d] += along * direction[d], residual[d] -= along * product[d];
            if (product_of(residual, residual) <= enough) break;
            substitute(f, residual, preconditioned, motion, load);
            const number before = fall;
            fall = product_of(residual, preconditioned);
            for (int d = 0; d < f.dofs; ++d) direction[d] = preconditioned[d] + fall / before * direction[d];
        }
        spread(x);
    }

    // Minus the rows' forces for their errors; whether a row has moved off or onto a bound
    CUDA_CALLABLE CUDA_NOINLINE bool respond()
    {
        int moved = 0;
        for (int i = 0; i < rows; ++i) {
            const number s = weight[i] * error[i];
            const int acts = s > low[i] && s < high[i];
            force[i] = s < low[i] ? low[i] : s > high[i] ? high[i] : s;
            moved |= acts != inside[i], inside[i] = acts;
        }
        for (int c = 0; c < contacts && curve; ++c) {
            if (zone[c] < 0) continue;
            const int now = cone(c).respond(error + row[c], force + row[c], curve + 36 * c);
            moved |= now != zone[c] || now == MIDDLE, zone[c] = now;
        }
        return moved;
    }

    // The rows' errors at accelerations `x`
    CUDA_CALLABLE CUDA_NOINLINE void err(const number* x)
    {
        spread(x);
        rates(x, error);
        for (int i = 0; i < rows; ++i) error[i] -= reference[i];
    }

    // Where along a step the slope vanishes, by Newton's method between bounds
    CUDA_CALLABLE number search_line(const int most, const number enough, const number lin, const number quad) const
    {
#pragma clang fp reassociate(on)
        number t = 1, below = 0, above = 0;
        bool known = false;
        for (int k = 0; k < most; ++k) {
            number slope = 0, curve = 0;
            for (int i = 0; i < rows; ++i) {
                const number s = weight[i] * (error[i] + t * change[i]);
                const bool acts = s > low[i] && s < high[i];
                slope += (s < low[i] ? low[i] : s > high[i] ? high[i] : s) * change[i];
                curve += acts ? weight[i] * change[i] * change[i] : 0;
            }
            for (int c = 0; c < contacts && this->curve; ++c)
                if (zone[c] >= 0) cone(c).along(error + row[c], change + row[c], t, slope, curve);
            slope += lin + t * quad, curve += quad;
            if ((slope < 0 ? -slope : slope) <= enough) break;
            if (slope < 0) below = t;
            else above = t, known = true;
            number next = t - slope / curve;
            if (known && (next <= below || next >= above)) next = number(0.5) * (below + above);
            if (next == t) break;
            t = next;
        }
        return t;
    }
};

}
}
