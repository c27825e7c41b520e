// ex2.cpp: ex2.approx.f32, apart from float.cpp because -frounding-math would keep it from being vectorised.
#include "float.h"
#include "lanes.h"

namespace cusim {

namespace {

template <bool kFtz>
void exp2_lanes(Warp& w, const Inst& i) {
    const f32* a = w.column<f32>(i.a);
    write_lanes(w, w.column<f32>(i.d), [=](int l) {
        f32 r = exp2_lane(kFtz ? flush(a[l]) : a[l]);
        return kFtz ? flush(r) : r;
    });
}

}  // namespace

Handler exp2_handler(bool ftz) {
    return ftz ? exp2_lanes<true> : exp2_lanes<false>;
}

}  // namespace cusim
