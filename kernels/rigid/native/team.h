#pragma once
// Threads that share one world's algebra: a warp of them on a GPU, one on a CPU.
#include "../../native/warp.h"

namespace fphys {
namespace {

// A thread has the numbers from `own` on, in steps of `step`.
struct Team {
#ifdef __CUDA_ARCH__
    const int own, step;
    CUDA_CALLABLE Team(int lane, int lanes) : own(lane), step(lanes) {}
#else
    enum { own = 0, step = 1 };  // known when it is compiled, so that loops become vector instructions
    CUDA_CALLABLE Team(int, int) {}
#endif

    CUDA_CALLABLE void wait() const  // for what the others write
    {
#ifdef __CUDA_ARCH__
        if (step > 1) __syncwarp();
#endif
    }

    template <class number> CUDA_CALLABLE number total(number x) const  // of what each has
    {
#ifdef __CUDA_ARCH__
        for (int d = step / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffff, x, d);
#endif
        return x;
    }
};

CUDA_CALLABLE inline void wait(int lanes) { Team(0, lanes).wait(); }
template <class number> CUDA_CALLABLE number total(int lanes, number x) { return Team(0, lanes).total(x); }

}
}
