#pragma once
// The cost of an elliptic contact: solve/cone.py says what it is.
#include "../../native/eight.h"

namespace fphys {
namespace {

enum Zone { TOP, MIDDLE, BOTTOM };

// Numbers of one cone: the errors n along the normal and u_i mu_i across, of length t
template <class number> struct Cone {
    int dim;
    number mu;            // mu_1 / root of impratio
    const number* friction;
    const number* steep;  // of each row

    CUDA_CALLABLE number across(const number* x) const
    {
        number uu = 0;
        for (int i = 1; i < dim; ++i) uu += friction[i - 1] * friction[i - 1] * x[i] * x[i];
        return sqrt(uu);
    }
    CUDA_CALLABLE int zone(const number n, const number t) const
    {
        return n >= mu * t ? TOP : mu * n + t <= 0 ? BOTTOM : MIDDLE;
    }
    CUDA_CALLABLE number stiff() const { return steep[0] / (mu * mu * (1 + mu * mu)); }

    // The zone of the errors x; minus the forces; and the second derivative, in rows of six
    CUDA_CALLABLE int respond(const number* x, number* force, number* curve) const
    {
        const number t = across(x);
        const int where = zone(mu * x[0], t);
        for (int i = 0; i < 6 * dim; ++i) curve[i] = 0;
        for (int i = 0; i < dim; ++i) force[i] = where == BOTTOM ? steep[i] * x[i] : 0;
        if (where == BOTTOM)
            for (int i = 0; i < dim; ++i) curve[7 * i] = steep[i];
        if (where != MIDDLE) return where;
        // 1/2 D (mu (n - t))^2, its slope D mu (n - t) c with c = mu (1, -q), q the derivative of t
        const number height = mu * (x[0] - t), bend = mu * stiff() * height;
        number q[6];
        q[0] = -1;
        for (int i = 1; i < dim; ++i) q[i] = friction[i - 1] * friction[i - 1] * x[i] / t;
        for (int i = 0; i < dim; ++i) {
            force[i] = -bend * q[i];
            for (int j = 0; j < dim; ++j) {
                curve[6 * i + j] = mu * mu * stiff() * q[i] * q[j];
                if (i && j) curve[6 * i + j] += bend / t * q[i] * q[j];
            }
            if (i) curve[7 * i] -= bend / t * friction[i - 1] * friction[i - 1];
        }
        return where;
    }

    // First and second derivative of the cost along dx, at x + s dx
    CUDA_CALLABLE void along(const number* x, const number* dx, const number s, number& slope, number& curve) const
    {
        number uu = 0, ud = 0, dd = 0, straight = 0, bent = 0;
        const number n = x[0] + s * dx[0];
        for (int i = 0; i < dim; ++i) {
            const number y = x[i] + s * dx[i], w = i ? friction[i - 1] * friction[i - 1] : 0;
            uu += w * y * y, ud += w * y * dx[i], dd += w * dx[i] * dx[i];
            straight += steep[i] * y * dx[i], bent += steep[i] * dx[i] * dx[i];
        }
        const number t = sqrt(uu);
        const int where = zone(mu * n, t);
        if (where == BOTTOM) slope += straight, curve += bent;
        if (where != MIDDLE) return;
        const number dt = ud / t, rate = mu * (dx[0] - dt), height = mu * (n - t);
        slope += stiff() * height * rate;
        curve += stiff() * (rate * rate - height * mu * (dd - dt * dt) / t);
    }
};

}
}
