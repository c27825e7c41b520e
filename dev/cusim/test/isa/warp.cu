// warp.cu: shuffles, votes, match, redux, barriers, divergence, predication, calls (PTX ISA 9.7.12, 9.7.13).
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "isa.h"

namespace cg = cooperative_groups;

namespace {

template <class F>
__global__ void run_threads(F f, u64* out) {
    out[threadIdx.x] = f(threadIdx.x);
}
// What `f(thread)` returns in each of one block's threads.
template <class F>
std::vector<u64> threads(int n, F f) {
    Device<u64> out{size_t(n)};
    run_threads<<<1, n>>>(f, out.data);
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    return out.host();
}
template <class F, class Want>
void each(const std::string& name, int n, F f, Want want) {
    std::vector<u64> got = threads(n, f);
    for (int t = 0; t < n; t++)
        expect_equal(name, "thread " + std::to_string(t), got[size_t(t)], u64(want(u32(t))));
}

// Scrambled values that differ between lanes.
__host__ __device__ u32 hash(u32 x) {
    x = (x ^ 61) * 0x9e3779b1u;
    return (x ^ x >> 15) * 0x85ebca77u;
}

// ---- shuffles

enum Mode { Up, Down, Butterfly, Index };

// d and the predicate by the ISA's pseudo-code: source lane, and whether it is in range.
u64 shuffled(Mode mode, u32 lane, u32 b, u32 c) {
    int bval = int(b & 31), cval = int(c & 31), mask = int(c >> 8 & 31), l = int(lane);
    int most = (l & mask) | (cval & ~mask), least = l & mask, j = 0;
    bool p = false;
    switch (mode) {
        case Up:
            j = l - bval, p = j >= most;
            break;
        case Down:
            j = l + bval, p = j <= most;
            break;
        case Butterfly:
            j = l ^ bval, p = j <= most;
            break;
        case Index:
            j = least | (bval & ~mask), p = j <= most;
            break;
    }
    return u64(p) << 32 | hash(u32(p ? j : l));
}

#define SHUFFLE(instruction, mode)                                                                           \
    for (u32 c : {0x1fu, 0u, 0x101fu, 0x181fu, 0x1c1fu, 0x1e1fu, 0x1000u, 0x1800u, 0x0fu, 0x1807u, 0x051fu}) \
        for (u32 b : {0u, 1u, 2u, 5u, 8u, 16u, 17u, 31u, 33u})                                               \
            each(                                                                                            \
                instruction " b=" + std::to_string(b) + " c=" + std::to_string(c), 32,                       \
                [=] __device__(u32 t) -> u64 {                                                               \
                    u32 d, p;                                                                                \
                    asm volatile("{.reg .pred q; " instruction                                               \
                                 " %0|q, %2, %3, %4, 0xffffffff; selp.u32 %1, 1, 0, q;}"                     \
                                 : "=r"(d), "=r"(p)                                                          \
                                 : "r"(hash(t)), "r"(b), "r"(c));                                            \
                    return u64(p) << 32 | d;                                                                 \
                },                                                                                           \
                [=](u32 t) { return shuffled(mode, t, b, c); });

void shuffles() {
    SHUFFLE("shfl.sync.up.b32", Up)
    SHUFFLE("shfl.sync.down.b32", Down)
    SHUFFLE("shfl.sync.bfly.b32", Butterfly)
    SHUFFLE("shfl.sync.idx.b32", Index)
    each(
        "shfl.sync.idx.b32, a source per lane", 32,
        [] __device__(u32 t) -> u64 { return __shfl_sync(0xffffffff, hash(t), int(t * 7 + 3)); },
        [](u32 t) { return hash((t * 7 + 3) & 31); });
    each(
        "shfl.sync.down.b32 in halves of a diverged warp", 32,
        [] __device__(u32 t) -> u64 {
            if (t < 16) return __shfl_down_sync(0x0000ffff, hash(t), 1, 16);
            return __shfl_up_sync(0xffff0000, hash(t), 2, 16);
        },
        [](u32 t) { return t < 16 ? hash(t == 15 ? t : t + 1) : hash(t < 18 ? t : t - 2); });
    each(
        "shfl.sync of 64 bits", 32,
        [] __device__(u32 t) -> u64 { return __shfl_xor_sync(0xffffffff, u64(t) << 40 | t, 9); },
        [](u32 t) { return u64(t ^ 9) << 40 | (t ^ 9); });
}

// ---- votes, match, redux

u32 lanes_where(u32 mask, bool (*f)(u32)) {
    u32 m = 0;
    for (u32 t = 0; t < 32; t++)
        if (mask >> t & 1 && f(t)) m |= 1u << t;
    return m;
}

#define REDUX(op, type, ctype, start, expression)                                                           \
    for (u32 mask : {0xffffffffu, 0x0000fff0u, 0x80000001u, 0x00000400u})                                   \
        each(                                                                                               \
            "redux.sync." op "." type, 32,                                                                  \
            [=] __device__(u32 t) -> u64 {                                                                  \
                if (!(mask >> t & 1)) return 0;                                                             \
                u32 d;                                                                                      \
                asm volatile("redux.sync." op "." type " %0, %1, %2;" : "=r"(d) : "r"(hash(t)), "r"(mask)); \
                return d;                                                                                   \
            },                                                                                              \
            [=](u32 t) {                                                                                    \
                ctype x = start;                                                                            \
                for (u32 k = 0; k < 32; k++)                                                                \
                    if (mask >> k & 1) {                                                                    \
                        ctype v = ctype(hash(k));                                                           \
                        x = ctype(expression);                                                              \
                    }                                                                                       \
                return mask >> t & 1 ? u64(u32(x)) : 0;                                                     \
            });

void votes() {
#define VOTE(op, predicate, all)                                                 \
    each(                                                                        \
        "vote.sync." op " of " #predicate, 32,                                   \
        [] __device__(u32 t) -> u64 {                                            \
            u32 d;                                                               \
            asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync." op \
                         ".pred q, p, 0xffffffff; selp.u32 %0, 1, 0, q;}"        \
                         : "=r"(d)                                               \
                         : "r"(u32(predicate)));                                 \
            return d;                                                            \
        },                                                                       \
        [](u32) { return u64(all); });
    VOTE("all", t < 32, 1)
    VOTE("all", t < 31, 0)
    VOTE("any", t == 17, 1)
    VOTE("any", t > 31, 0)
    VOTE("uni", t > 31, 1)
    VOTE("uni", t < 32, 1)
    VOTE("uni", t < 3, 0)
#undef VOTE
    each(
        "vote.sync.ballot.b32", 32,
        [] __device__(u32 t) -> u64 { return __ballot_sync(0xffffffff, hash(t) & 1); },
        [](u32) { return lanes_where(~0u, [](u32 t) { return bool(hash(t) & 1); }); });
    each(
        "vote.sync.ballot.b32 with a negated predicate and a mask", 32,
        [] __device__(u32 t) -> u64 {
            u32 d = 0;
            if (t >= 8)
                asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, !p, 0xffffff00;}"
                             : "=r"(d)
                             : "r"(hash(t) & 1));
            return d;
        },
        [](u32 t) { return t < 8 ? 0 : lanes_where(0xffffff00, [](u32 k) { return !(hash(k) & 1); }); });
    each(
        "activemask.b32", 32,
        [] __device__(u32 t) -> u64 {
            u32 d = 0;
            if (t % 3 == 1) asm volatile("activemask.b32 %0;" : "=r"(d));
            return u64(d >> t & 1) << 32 | (d & ~0x92492492u);  // its own lane, and none outside the branch
        },
        [](u32 t) { return t % 3 == 1 ? 1ull << 32 : 0; });
    each(
        "match.any.sync.b32", 32,
        [] __device__(u32 t) -> u64 { return __match_any_sync(0xffffffff, hash(t) % 5); },
        [](u32 t) {
            u32 m = 0;
            for (u32 k = 0; k < 32; k++) m |= u32(hash(k) % 5 == hash(t) % 5) << k;
            return m;
        });
    each(
        "match.any.sync.b64 in a half", 32,
        [] __device__(u32 t) -> u64 { return t < 16 ? __match_any_sync(0xffff, u64(t & 1) << 32) : 0; },
        [](u32 t) { return t < 16 ? (t & 1 ? 0xaaaa : 0x5555) : 0; });
    for (u32 same : {0u, 1u})
        each(
            "match.all.sync.b32", 32,
            [=] __device__(u32 t) -> u64 {
                int p;
                u32 m = __match_all_sync(0xffffffff, same ? 7 : t == 30, &p);
                return u64(p != 0) << 32 | m;
            },
            [=](u32) { return same ? 0x1ffffffffull : 0; });
    REDUX("add", "u32", u32, 0, x + v)
    REDUX("add", "s32", i32, 0, u32(x) + u32(v))
    REDUX("min", "u32", u32, 0xffffffff, x < v ? x : v)
    REDUX("max", "u32", u32, 0, x > v ? x : v)
    REDUX("min", "s32", i32, 0x7fffffff, x < v ? x : v)
    REDUX("max", "s32", i32, -0x7fffffff - 1, x > v ? x : v)
    REDUX("and", "b32", u32, 0xffffffff, x & v)
    REDUX("or", "b32", u32, 0, x | v)
    REDUX("xor", "b32", u32, 0, x ^ v)
}

// ---- control flow

__host__ __device__ u32 collatz(u32 n) {
    u32 steps = 0;
    for (; n != 1 && steps < 200; steps++) n = n & 1 ? 3 * n + 1 : n / 2;
    return steps;
}
__host__ __device__ u32 dispatch(u32 t) {
    u32 x = t;
    for (u32 k = 0; k < 4; k++) {
        switch ((t + k) % 9) {
            case 0:
                x = x * 3 + 1;
                break;
            case 1:
                x ^= 0x55;
                break;
            case 2:
                continue;
            case 3:
                x += k;
                [[fallthrough]];
            case 4:
                x -= 7;
                break;
            case 5:
                x = x << 3 | x >> 29;
                break;
            case 6:
                return x;
            case 7:
                x *= x;
                break;
            default:
                x = ~x;
        }
        if (x & 1) x += hash(x) & 0xff;
    }
    return x;
}
struct Pair {
    u32 a;
    u64 b;
    u8 c[5];
};
__host__ __device__ __noinline__ Pair twist(Pair p, u32 by) {
    Pair r = {p.a + by, p.b << (by & 7), {}};
    for (int k = 0; k < 5; k++) r.c[k] = u8(p.c[4 - k] ^ by);
    return r;
}
__host__ __device__ __noinline__ double polynomial(double x, float y, u16 z) {
    return x * x + y - z;
}
__host__ __device__ u64 through_calls(u32 t) {
    Pair p = {t, t + 1, {1, 2, 3, 4, u8(t)}};
    for (u32 k = 0; k < t % 4 + 1; k++) p = twist(p, k + t);
    u64 x = p.a + p.b;
    for (u8 c : p.c) x = x * 31 + c;
    return x + u64(polynomial(double(t), 0.5f, u16(t)) * 2);
}
__host__ __device__ u64 through_memory(u32 t) {
    u32 table[24];  // indexed at run time: local memory
    u8 small[16];
    for (u32 k = 0; k < 24; k++) table[k] = hash(k + t);
    for (u32 k = 0; k < 16; k++) small[k] = u8(k * t);
    u64 x = 0;
    for (u32 k = 0; k < 24; k++) x = x * 3 + table[table[k] % 24] + small[table[k] % 16];
    return x;
}

void control() {
    each(
        "loops of different length", 96, [] __device__(u32 t) -> u64 { return collatz(t + 1); },
        [](u32 t) { return collatz(t + 1); });
    each(
        "switch, fall through, continue, return", 64, [] __device__(u32 t) -> u64 { return dispatch(t); },
        [](u32 t) { return dispatch(t); });
    each(
        "calls with structures", 40, [] __device__(u32 t) -> u64 { return through_calls(t); },
        [](u32 t) { return through_calls(t); });
    each(
        "local arrays", 64, [] __device__(u32 t) -> u64 { return through_memory(t); },
        [](u32 t) { return through_memory(t); });
    each(
        "predicated instructions and a branch", 32,
        [] __device__(u32 t) -> u64 {
            u32 d;
            asm volatile(
                "{\n.reg .pred p, q;\nmov.u32 %0, 0;\nsetp.lt.u32 p, %1, 10;\nsetp.gt.u32 q, %1, 20;\n"
                "@p add.u32 %0, %0, 1;\n@!p add.u32 %0, %0, 2;\n@q bra skip;\nadd.u32 %0, %0, 100;\n@p bra "
                "skip;\nadd.u32 %0, %0, 1000;\n"
                "skip:\nadd.u32 %0, %0, 10000;\n}"
                : "=&r"(d)
                : "r"(t));
            return d;
        },
        [](u32 t) { return (t < 10 ? 1 : 2) + (t > 20 ? 0 : 100) + (t > 20 || t < 10 ? 0 : 1000) + 10000; });
}

__global__ void three_dimensions(u32* out) {
    u32 block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    u32 thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    out[block * 42 + thread] =
        lane << 16 | threadIdx.z << 12 | threadIdx.y << 8 | threadIdx.x << 4 | (blockIdx.z * 2 + blockIdx.y);
}
// Lanes count x fastest, then y, then z.
void dimensions() {
    Device<u32> out(12 * 42);
    three_dimensions<<<dim3(3, 2, 2), dim3(7, 3, 2)>>>(out.data);
    CUDA(cudaDeviceSynchronize());
    std::vector<u32> got = out.host();
    for (u32 b = 0; b < 12; b++)
        for (u32 t = 0; t < 42; t++)
            expect_equal("indices in three dimensions",
                         "block " + std::to_string(b) + ", thread " + std::to_string(t), got[b * 42 + t],
                         t % 32 << 16 | t / 21 << 12 | t / 7 % 3 << 8 | t % 7 << 4 | (b / 6 * 2 + b / 3 % 2));
}

__host__ __device__ u32 uneven_loop(u32 t) {
    u32 x = t;
    for (u32 k = 0; k < t; k++) {
        if (k == 20) break;
        x += k;
        if (k % 7 == 3) continue;
        x ^= 1;
    }
    return x;
}
// Collectives inside diverged code, among the lanes that a vote named, and in a warp that is not full.
void diverged_collectives() {
    each(
        "redux among the lanes of a ballot", 32,
        [] __device__(u32 t) -> u64 {
            u64 x = 0;
            for (u32 round = 0; round < 5; round++) {
                bool in = (hash(t) >> round & 1) != 0;
                u32 mask = __ballot_sync(0xffffffff, in);
                if (in)
                    x = x * 1000 + __reduce_add_sync(mask, t);
                else
                    x += __reduce_max_sync(~mask, t);
            }
            return x;
        },
        [](u32 t) {
            u64 x = 0;
            for (u32 round = 0; round < 5; round++) {
                u64 total = 0, most = 0;
                for (u32 k = 0; k < 32; k++)
                    if (hash(k) >> round & 1)
                        total += k;
                    else
                        most = k;
                x = hash(t) >> round & 1 ? x * 1000 + total : x + most;
            }
            return x;
        });
    each(
        "vote and shuffle in a warp of eight", 40,
        [] __device__(u32 t) -> u64 {
            if (t < 32) return 0;
            u32 votes = __ballot_sync(0xff, t % 3 == 0);
            return votes << 8 | __shfl_xor_sync(0xff, t, 3);
        },
        [](u32 t) { return t < 32 ? 0 : 0x92u << 8 | (t ^ 3); });
    each(
        "a loop that lanes leave one by one, then a shuffle", 32,
        [] __device__(u32 t) -> u64 {
            u32 x = uneven_loop(t);
            __syncwarp();
            return __shfl_sync(0xffffffff, x, 31 - t);
        },
        [](u32 t) { return uneven_loop(31 - t); });
}

// ---- barriers

// Two warps produce, two consume, through barriers 1 (full) and 2 (empty).
__global__ void pipeline(u32* out) {
    __shared__ u32 slot[64];
    int t = threadIdx.x;
    if (t < 64) {
        for (int k = 0; k < 5; k++) {
            if (k) asm volatile("bar.sync 2, 128;" ::: "memory");
            slot[t] = 1000 * k + t;
            asm volatile("bar.arrive 1, 128;" ::: "memory");
        }
    } else {
        for (int k = 0; k < 5; k++) {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            out[64 * k + t - 64] = slot[127 - t];
            if (k < 4) asm volatile("bar.arrive 2, 128;" ::: "memory");
        }
    }
}
void barriers() {
    Device<u32> out(320);
    pipeline<<<1, 128>>>(out.data);
    CUDA(cudaDeviceSynchronize());
    std::vector<u32> got = out.host();
    for (u32 k = 0; k < 5; k++)
        for (u32 t = 0; t < 64; t++)
            expect_equal("bar.sync and bar.arrive",
                         "round " + std::to_string(k) + ", thread " + std::to_string(t), got[64 * k + t],
                         1000 * k + 63 - t);
    each(
        "barrier.red.popc.u32", 96, [] __device__(u32 t) -> u64 { return __syncthreads_count(t % 5 == 0); },
        [](u32) { return 20; });
    each(
        "barrier.red.and.pred", 96,
        [] __device__(u32 t) -> u64 {
            return (__syncthreads_and(t < 96) != 0) + 2 * (__syncthreads_and(t < 95) != 0);
        },
        [](u32) { return 1; });
    each(
        "barrier.red.or.pred", 96,
        [] __device__(u32 t) -> u64 {
            return (__syncthreads_or(t == 95) != 0) + 2 * (__syncthreads_or(t > 95) != 0);
        },
        [](u32) { return 1; });
    each(
        "bar.sync of each warp with its own barrier", 96,
        [] __device__(u32 t) -> u64 {
            __shared__ u32 x[96];
            x[t] = t * t;
            asm volatile("bar.sync %0, 32;" ::"r"(1 + t / 32) : "memory");
            return x[t ^ 31];
        },
        [](u32 t) { return (t ^ 31) * (t ^ 31); });
    each(
        "bar.warp.sync of halves", 32,
        [] __device__(u32 t) -> u64 {
            __shared__ u32 x[32];
            x[t] = t + 5;
            if (t < 16)
                __syncwarp(0xffff);
            else
                __syncwarp(0xffff0000);
            return x[t ^ 15];
        },
        [](u32 t) { return (t ^ 15) + 5; });
}

// ---- special registers, groups, output

void registers() {
#define SPECIAL(name, expression)                              \
    each(                                                      \
        "%" name, 64,                                          \
        [] __device__(u32) -> u64 {                            \
            u32 d;                                             \
            asm volatile("mov.u32 %0, %%" name ";" : "=r"(d)); \
            return d;                                          \
        },                                                     \
        [](u32 t) { return u32(expression); });
    SPECIAL("tid.x", t)
    SPECIAL("tid.y", t * 0)
    SPECIAL("ntid.x", t * 0 + 64)
    SPECIAL("ctaid.x", t * 0)
    SPECIAL("nctaid.z", t * 0 + 1)
    SPECIAL("laneid", t % 32)
    SPECIAL("lanemask_eq", 1u << t % 32)
    SPECIAL("lanemask_lt", (1u << t % 32) - 1)
    SPECIAL("lanemask_le", (1u << t % 32) * 2 - 1)
    SPECIAL("lanemask_gt", ~((1u << t % 32) * 2 - 1))
    SPECIAL("lanemask_ge", ~((1u << t % 32) - 1))
#undef SPECIAL
    each(
        "%clock64 and %globaltimer do not run back", 32,
        [] __device__(u32 t) -> u64 {
            u64 c0, c1, g0, g1;
            asm volatile("mov.u64 %0, %%clock64;\nmov.u64 %1, %%globaltimer;" : "=l"(c0), "=l"(g0));
            u32 waste = collatz(t + 1);
            asm volatile("mov.u64 %0, %%clock64;\nmov.u64 %1, %%globaltimer;" : "=l"(c1), "=l"(g1));
            return u64(c1 > c0) + 2 * u64(g1 >= g0 && g0 > 0) + (waste == 12345);
        },
        [](u32) { return 3; });
}

void groups() {
    each(
        "cooperative groups: reduce of a tile of 32", 64,
        [] __device__(u32 t) -> u64 {
            auto tile = cg::tiled_partition<32>(cg::this_thread_block());
            return cg::reduce(tile, hash(t), cg::plus<u32>());
        },
        [](u32 t) {
            u32 s = 0;
            for (u32 k = 0; k < 32; k++) s += hash(t / 32 * 32 + k);
            return s;
        });
    each(
        "cooperative groups: greatest of a tile of 8", 64,
        [] __device__(u32 t) -> u64 {
            auto tile = cg::tiled_partition<8>(cg::this_thread_block());
            return u32(cg::reduce(tile, int(hash(t)), cg::greater<int>()));
        },
        [](u32 t) {
            i32 s = i32(hash(t / 8 * 8));
            for (u32 k = 0; k < 8; k++) s = std::max(s, i32(hash(t / 8 * 8 + k)));
            return u32(s);
        });
    each(
        "cooperative groups: float sum of a tile of 16", 32,
        [] __device__(u32 t) -> u64 {
            auto tile = cg::tiled_partition<16>(cg::this_thread_block());
            return u64(cg::reduce(tile, float(t), cg::plus<float>()));
        },
        [](u32 t) { return t < 16 ? 120 : 376; });
    each(
        "cooperative groups: coalesced threads", 32,
        [] __device__(u32 t) -> u64 {
            if (t % 3) return 0;
            auto active = cg::coalesced_threads();
            return u64(active.size()) << 32 | active.thread_rank() << 16 | active.shfl(t, 2);
        },
        [](u32 t) { return t % 3 ? 0 : 11ull << 32 | u64(t / 3) << 16 | 6; });
    each(
        "cooperative groups: block ranks", 64,
        [] __device__(u32) -> u64 {
            auto block = cg::this_thread_block();
            block.sync();
            return u64(block.size()) << 32 | block.thread_rank();
        },
        [](u32 t) { return 64ull << 32 | t; });
}

__global__ void print_kernel() {
    if (threadIdx.x == 1)
        printf("%d %u %lld %5.2f %x %c %s %% %e\n", -7, 4000000000u, 1234567890123ll, 3.14159, 0xbeef, 'q',
               "text", 1.5e10);
}
__global__ void assert_kernel(bool condition) {
    if (!condition) __assert_fail("isa_condition", "warp.cu", 1, "assert_kernel");
}

// This program again with `argument`; what it wrote to both outputs, its status in the last line.
std::string child(const char* self, const char* argument) {
    std::string out;
    FILE* pipe = popen((std::string(self) + " " + argument + " 2>&1; echo status $?").c_str(), "r");
    if (!pipe) return "no child";
    char buffer[256];
    while (std::fgets(buffer, sizeof buffer, pipe)) out += buffer;
    pclose(pipe);
    return out;
}
void output(const char* self) {
    std::string printed = child(self, "print");
    std::string want = "-7 4000000000 1234567890123  3.14 beef q text % 1.500000e+10\nstatus 0\n";
    expect(printed == want, "printf printed: " + printed, "", 0, 0);
    expect(child(self, "hold").find("status 0") != std::string::npos, "an assertion that holds", "", 0, 0);
    std::string stopped = child(self, "break");
    expect(
        stopped.find("status 0") == std::string::npos && stopped.find("isa_condition") != std::string::npos,
        "a failed assertion stops and names itself: " + stopped, "", 0, 0);
}

}  // namespace

int main(int argc, char** argv) {
    std::string argument = argc > 1 ? argv[1] : "";
    if (argument == "print") {
        print_kernel<<<1, 2>>>();
        return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
    }
    if (argument == "hold" || argument == "break") {
        assert_kernel<<<1, 32>>>(argument == "hold");
        return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
    }
    shuffles();
    votes();
    control();
    dimensions();
    diverged_collectives();
    barriers();
    registers();
    groups();
    output(argv[0]);
    return summary("warp");
}
