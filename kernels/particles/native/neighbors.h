#pragma once
// Which slots are near another.
#include "../../native/eight.h"

namespace fphys {
namespace {

struct Ascending {  // for every mask of eight, its lanes
    unsigned char lane[256][8];
    constexpr Ascending() : lane()
    {
        for (int bits = 0; bits < 256; ++bits)
            for (int k = 0, place = 0; k < 8; ++k)
                if (bits >> k & 1) lane[bits][place++] = k;
    }
};

// Cells that follow one another along the first axis are one run of slots; where the three of them cross the seam of
// the torus they are two. Beyond a seam the centre is moved by the period. A processor looks at eight candidates at
// once, for all of a cell in its turn: a table says which lanes of a mask are set, and as many are written, so there
// is no branch to predict. On a GPU each slot looks for itself.
template <class number>
CUDA_CALLABLE void list_cell(
    int world, int row, int first, const vec3i& count, const vec3<number>& period, number radius,
    const array<int>& cell, const array<int>& start, const array<number>& x, const array<int>& index,
    const array<int>& found)
{
    const int* cells = part(cell, world);
    const int* starts = part(start, world);
    const number* X = part(x, world);
    const number *Y = X + x.shape[2], *Z = Y + x.shape[2];
    const int here = cells[row], width = index.shape[2], room = width - 8;
    int* rows = part(index, world, row);
    int* numbers = part(found, world) + row;
    const number reach = radius * radius;
#ifdef __CUDACC__
    constexpr int MOST = 1;
    const int rest = 1;
#else
    constexpr int MOST = 16;
    if (here >= 0 && row > 0 && cells[row - 1] == here) return;  // with the first of its cell
    int rest = 1;
    while (here >= 0 && row + rest < cell.shape[1] && cells[row + rest] == here) ++rest;
    using many = eight<number>;
    typedef int lanes __attribute__((ext_vector_type(8)));
    typedef bool mask __attribute__((ext_vector_type(8)));
    typedef unsigned char bytes __attribute__((ext_vector_type(8)));
    static constexpr Ascending near_first{};
#endif
    for (int done = 0; done < rest; done += MOST) {
        const int members = rest - done < MOST ? rest - done : MOST, slot = first + row + done;
        int* const lists = rows + done * width;
        int number_near[MOST] = {0};
        auto append = [&](int from, int end, number turn0, number turn1, number turn2) {
            number c0[MOST], c1[MOST], c2[MOST];
            for (int k = 0; k < members; ++k)
                c0[k] = X[slot + k] + turn0, c1[k] = Y[slot + k] + turn1, c2[k] = Z[slot + k] + turn2;
#ifdef __CUDACC__
            for (int s = from; s < end; ++s) {
                const number d0 = c0[0] - X[s], d1 = c1[0] - Y[s], d2 = c2[0] - Z[s];
                lists[number_near[0] < room ? number_near[0] : room] = s;
                number_near[0] += (d0 * d0 + d1 * d1 + d2 * d2 < reach) & (s != slot);
            }
#else
            for (int s = from; s < end; s += 8) {
                many x0, x1, x2;
                __builtin_memcpy(&x0, X + s, sizeof(many));
                __builtin_memcpy(&x1, Y + s, sizeof(many));
                __builtin_memcpy(&x2, Z + s, sizeof(many));
                const lanes at = s + lanes{0, 1, 2, 3, 4, 5, 6, 7};
                for (int k = 0; k < members; ++k) {
                    const many d0 = c0[k] - x0, d1 = c1[k] - x1, d2 = c2[k] - x2;
                    const lanes near = __builtin_convertvector(d0 * d0 + d1 * d1 + d2 * d2 < reach, lanes);
                    const mask kept = __builtin_convertvector(near & (at < end) & (at != slot + k), mask);
                    const unsigned char bits = __builtin_bit_cast(unsigned char, kept);
                    bytes chosen;
                    __builtin_memcpy(&chosen, near_first.lane[bits], sizeof(bytes));
                    const lanes slots = s + __builtin_convertvector(chosen, lanes);
                    const int place = number_near[k] < room ? number_near[k] : room;
                    __builtin_memcpy(lists + k * width + place, &slots, sizeof(lanes));
                    number_near[k] += __builtin_popcount(bits);
                }
            }
#endif
        };
        const int nx = count[0], ny = count[1], nz = count[2];
        const int cx = here % nx, cy = (here / nx) % ny, cz = here / (nx * ny);
        for (int dz = nz > 1 ? -1 : 0; here >= 0 && dz <= (nz > 1 ? 1 : 0); ++dz)
            for (int dy = -1; dy <= 1; ++dy) {
                const int wz = cz + dz < 0 ? nz : cz + dz >= nz ? -nz : 0;
                const int wy = cy + dy < 0 ? ny : cy + dy >= ny ? -ny : 0;
                const int* line = starts + ((cz + dz + wz) * ny + cy + dy + wy) * nx;
                const number turn1 = (wy > 0) * period[1] - (wy < 0) * period[1];
                const number turn2 = (wz > 0) * period[2] - (wz < 0) * period[2];
                append(line[cx == 0 ? 0 : cx - 1], line[cx == nx - 1 ? nx : cx + 2], number(0), turn1, turn2);
                if (cx == 0) append(line[nx - 1], line[nx], period[0], turn1, turn2);
                if (cx == nx - 1) append(line[0], line[1], -period[0], turn1, turn2);
            }
        for (int k = 0; k < members; ++k) {
            int* const list = lists + k * width;
            numbers[done + k] = number_near[k];
            for (int e = 0; e < 8; ++e) list[(number_near[k] < room ? number_near[k] : room) + e] = slot + k;
            list[width - 1] = slot + k;
        }
    }
}

}
}
