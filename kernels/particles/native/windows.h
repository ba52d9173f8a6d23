#pragma once
// Windows: the nodes that a part of a world's particles reaches, of a grid of its own.
//
// Nothing else of such a grid is cleared, added to or read. Blocks of 4 x 4 x 4 places (4 x 4 in a plane) in which one
// of the part's stencils begins are marked, a bit each; their stencils end up to two nodes after them.
#include "stencil.h"

namespace fphys {
namespace {

const int EDGE = 4, REACH = 2, BITS = 32;  // nodes of a block, nodes beyond it, blocks of a word

// The marks of a part. Nodes in planes of lines along which they follow one another; a scene in a plane has one line in
// each.
struct Window {
    const int planes, lines, length, columns, words;
    unsigned* const marks;
    CUDA_CALLABLE Window(const vec3i& nodes, int* marks)
        : planes(nodes[0]), lines(nodes[2] == 1 ? 1 : nodes[1]), length(nodes[2] == 1 ? nodes[1] : nodes[2]),
          columns((lines + EDGE - 1) / EDGE), words((length + EDGE * BITS - 1) / (EDGE * BITS)), marks((unsigned*)marks)
    {
    }
    CUDA_CALLABLE int size() const { return (planes + EDGE - 1) / EDGE * columns * words; }
    CUDA_CALLABLE unsigned* row(int i, int j) const { return marks + (i * columns + j) * words; }

    // the first block from which a plane or a line is reached; the last one is its own
    CUDA_CALLABLE static int first(int at) { return at > REACH ? (at - REACH) / EDGE : 0; }
    CUDA_CALLABLE bool reaches(int plane) const
    {
        unsigned any = 0;
        for (int i = first(plane); i <= plane / EDGE; ++i)
            for (int w = 0; w < columns * words; ++w) any |= row(i, 0)[w];
        return any;
    }
    // act(first node, how many follow it) for all that is reached of a line
    template <class Act> CUDA_CALLABLE void runs(int plane, int line, Act act) const
    {
        int done = 0;
        for (int w = 0; w < words; ++w) {
            unsigned bits = 0;
            for (int i = first(plane); i <= plane / EDGE; ++i)
                for (int j = first(line); j <= line / EDGE; ++j) bits |= row(i, j)[w];
            for (int start = w * BITS * EDGE; bits; start += EDGE, bits >>= 1) {
                const int end = start + EDGE + REACH < length ? start + EDGE + REACH : length;
                const int begin = start < done ? done : start;
                if (!(bits & 1) || begin >= end) continue;
                act((plane * lines + line) * length + begin, end - begin);
                done = end;
            }
        }
    }
    template <class Act> CUDA_CALLABLE void all_runs(Act act) const
    {
        for (int plane = 0; plane < planes; ++plane)
            if (reaches(plane))
                for (int line = 0; line < lines; ++line) runs(plane, line, act);
    }
};

// Where the stencils of a part's particles begin. A particle that has none on the grid marks the first block.
template <class number>
CUDA_CALLABLE void mark_places(
    int world, const vec3<number>& lower, number dx, const vec3i& nodes, const array<number>& x,
    const array<int>& marks_out)
{
    using V = wide<number>;
    const Window window(nodes, part(marks_out, world));
    const int count = x.shape[1], inner = nodes[2] == 1 ? 1 : 2;
    int last = 0;
    unsigned found = 0;
    for (int first = 0; first < count; first += WIDE) {
        whole block[3] = {};
        for (int a = 0; a <= inner; ++a) {
            V away;
            for (int k = 0; k < WIDE; ++k)
                set(away, k, part(x, world, first + k < count ? first + k : first)[a] - lower[a]);
            const V one = V(number(1)), y = away / dx + number(1.5);  // as `Places`
            const V safe = y >= one ? (y < V(number(nodes[a] - 2)) ? y : one) : one;
            block[a] = truncated<number>(safe - number(0.5)) >> 2;
        }
        const whole line = inner == 2 ? block[1] : block[2], along = inner == 2 ? block[2] : block[1];
        const whole rows = (block[0] * window.columns + line) * window.words + (along >> 5), bits = along & 31;
        for (int k = 0; k < WIDE; ++k) {
            if (of<int>(rows, k) != last) window.marks[last] |= found, found = 0, last = of<int>(rows, k);
            found |= 1u << of<int>(bits, k);
        }
    }
    window.marks[last] |= found;
}

// Zero what a part's particles will add to; nothing where `marks` is shorter than a window's: a grid without one.
template <class number>
CUDA_CALLABLE void clear_window(
    int world, const vec3i& nodes, const array<int>& marks, const array<vec4<number>>& grid_out)
{
    const Window window(nodes, part(marks, world));
    if (!grid_out.data || marks.shape[1] < window.size()) return;
    four<number>* const to = (four<number>*)part(grid_out, world);
    window.all_runs([&](int node, int count) {
        for (int m = 0; m < count; ++m) to[node + m] = zero<number>();
    });
}

// the nodes of a part's window, of the grid of all
template <class number>
CUDA_CALLABLE void cut_window(
    int world, const vec3i& nodes, const array<int>& marks, const array<vec4<number>>& grid,
    const array<vec4<number>>& window_out)
{
    const four<number>* const from = (const four<number>*)part(grid, world);
    four<number>* const to = (four<number>*)part(window_out, world);
    Window(nodes, part(marks, world)).all_runs([&](int node, int count) {
        for (int m = 0; m < count; ++m) to[node + m] = from[node + m];
    });
}

// the sum of all windows in one plane of nodes, in the parts' order
template <class number>
CUDA_CALLABLE void join_plane(
    int world, const vec3i& nodes, const array<int>& plane, const array<int>& marks,
    const array<vec4<number>>& windows, const array<vec4<number>>& grid_out)
{
    const int at = *part(plane, world), size = grid_out.shape[1];
    four<number>* const to = (four<number>*)part(grid_out, world);
    for (int m = 0; m < size; ++m) to[m] = zero<number>();
    for (int k = 0; k < windows.shape[1]; ++k) {
        const Window window(nodes, part(marks, world, k));
        if (!window.reaches(at)) continue;
        const four<number>* const from = (const four<number>*)part(windows, world, k);
        for (int line = 0; line < window.lines; ++line)
            window.runs(at, line, [&](int node, int count) {
                for (int m = 0; m < count; ++m) to[node - at * size + m] = to[node - at * size + m] + from[node + m];
            });
    }
}

}
}
