// nccl.cpp: libnccl.so.2: collectives and point-to-point between processes, over shared memory.
//
// Sums are formed in rank order, in f32 (f64 for f64, integers exactly), and rounded once: deterministic and
// the same on every rank, but not the order of a GPU ring.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "../blas/gemm.h"
#include "../rt/standin.h"
#include "shared_area.h"

#define CUSIM_API extern "C" __attribute__((visibility("default")))

using namespace cusim;

struct ncclComm {
    int rank, ranks, device;
    std::shared_ptr<SharedArea> area;
    bool aborted = false;
};

namespace {

enum Kind { kAllReduce = 1, kReduce, kReduceScatter, kAllGather, kBroadcast };

size_t bytes_of(ncclDataType_t t) {
    switch (t) {
        case ncclInt8:
        case ncclUint8:
            return 1;
        case ncclFloat16:
        case ncclBfloat16:
            return 2;
        case ncclInt32:
        case ncclUint32:
        case ncclFloat32:
            return 4;
        case ncclInt64:
        case ncclUint64:
        case ncclFloat64:
            return 8;
        default:
            standin_stop(("nccl: data type " + std::to_string(int(t)) +
                          " is not known; extend dev/cusim/nccl/nccl.cpp")
                             .c_str());
    }
}

template <class T>
T combine(T x, T y, ncclRedOp_t op) {
    switch (op) {
        case ncclProd:
            return T(x * y);
        case ncclMax:
            return std::max(x, y);
        case ncclMin:
            return std::min(x, y);
        default:
            return T(x + y);  // sum, and average before the division
    }
}

// out[i] = reduction over ranks of slot(rank)[i], i < count.
template <class T, class Load, class Store>
void reduce_with(const SharedArea& area, int ranks, size_t count, ncclRedOp_t op, void* out, Load load,
                 Store store) {
    for (size_t i = 0; i < count; i++) {
        T total = load(area.slot(0), i);
        for (int r = 1; r < ranks; r++) total = combine<T>(total, load(area.slot(r), i), op);
        if (op == ncclAvg) total = T(total / T(ranks));
        store(out, i, total);
    }
}
template <class T>
void reduce_plain(const SharedArea& area, int ranks, size_t count, ncclRedOp_t op, void* out) {
    reduce_with<T>(
        area, ranks, count, op, out, [](const char* p, size_t i) { return reinterpret_cast<const T*>(p)[i]; },
        [](void* p, size_t i, T x) { static_cast<T*>(p)[i] = x; });
}
void reduce_half(const SharedArea& area, int ranks, size_t count, ncclRedOp_t op, void* out,
                 cudaDataType_t type) {
    reduce_with<float>(
        area, ranks, count, op, out,
        [=](const char* p, size_t i) { return load_element(p, type, int64_t(i)); },
        [=](void* p, size_t i, float x) { store_element(p, type, int64_t(i), x); });
}
void reduce(const SharedArea& area, int ranks, size_t count, ncclDataType_t t, ncclRedOp_t op, void* out) {
    if (op > ncclAvg)
        standin_stop("nccl: user-defined reductions are not known; extend dev/cusim/nccl/nccl.cpp");
    switch (t) {
        case ncclInt8:
            return reduce_plain<int8_t>(area, ranks, count, op, out);
        case ncclUint8:
            return reduce_plain<uint8_t>(area, ranks, count, op, out);
        case ncclInt32:
            return reduce_plain<int32_t>(area, ranks, count, op, out);
        case ncclUint32:
            return reduce_plain<uint32_t>(area, ranks, count, op, out);
        case ncclInt64:
            return reduce_plain<int64_t>(area, ranks, count, op, out);
        case ncclUint64:
            return reduce_plain<uint64_t>(area, ranks, count, op, out);
        case ncclFloat32:
            return reduce_plain<float>(area, ranks, count, op, out);
        case ncclFloat64:
            return reduce_plain<double>(area, ranks, count, op, out);
        case ncclFloat16:
            return reduce_half(area, ranks, count, op, out, CUDA_R_16F);
        default:
            return reduce_half(area, ranks, count, op, out, CUDA_R_16BF);
    }
}

// ---- groups: operations between ncclGroupStart and End are issued together, sends and receives make
// progress jointly ------

struct Transfer {
    bool send;
    int peer;
    char* data;
    size_t left;
};
struct Pending {
    ncclComm* comm;
    cudaStream_t stream;
    const char* name;
    std::function<void()> collective;  // empty for a transfer
    bool send;
    int peer;
    const void* data;
    size_t bytes;
};
thread_local int group_depth = 0;
thread_local std::vector<Pending> group;

void transfer_all(SharedArea& area, std::vector<Transfer> open, const char* what) {
    double start = SharedArea::now();
    bool gone = false;
    while (!open.empty()) {
        bool moved = false;
        std::vector<std::pair<bool, int>>
            busy;  // one chunk per direction and peer at a time keeps their order
        for (Transfer& t : open) {
            if (std::find(busy.begin(), busy.end(), std::make_pair(t.send, t.peer)) != busy.end()) continue;
            busy.emplace_back(t.send, t.peer);
            size_t n = std::min(t.left, area.chunk_bytes());
            if (!(t.send ? area.try_send(t.peer, t.data, n) : area.try_receive(t.peer, t.data, n))) continue;
            t.data += n;
            t.left -= n;
            moved = true;
        }
        open.erase(std::remove_if(open.begin(), open.end(), [](const Transfer& t) { return t.left == 0; }),
                   open.end());
        if (moved) {
            start = SharedArea::now();
            gone = false;
        } else if (gone) {  // and it left nothing behind
            area.give_up(std::to_string(open[0].peer), what, true);
        } else {
            gone = area.pause(open[0].peer, start, what);
        }
    }
}

void issue(std::vector<Pending> items) {
    // All transfers of a communicator and stream form one operation; collectives follow in order.
    std::vector<bool> taken(items.size(), false);
    for (size_t i = 0; i < items.size(); i++) {
        if (taken[i]) continue;
        const Pending& first = items[i];
        if (first.collective) {
            standin_enqueue(first.stream, first.name, first.collective);
            continue;
        }
        std::vector<Pending> together;
        for (size_t k = i; k < items.size(); k++)
            if (!items[k].collective && items[k].comm == first.comm && items[k].stream == first.stream)
                together.push_back(items[k]), taken[k] = true;
        std::shared_ptr<SharedArea> area = first.comm->area;
        standin_enqueue(first.stream, first.name, [together, area] {
            std::vector<Transfer> open;
            for (const Pending& p : together)
                if (p.bytes)
                    open.push_back(
                        {p.send, p.peer,
                         static_cast<char*>(standin_bytes(p.data, p.bytes, !p.send, p.name, "buffer")),
                         p.bytes});
            transfer_all(*area, open, together[0].name);
        });
    }
}

ncclResult_t submit(Pending p) {
    if (!p.comm || p.comm->aborted) return ncclInvalidArgument;
    group.push_back(std::move(p));
    if (group_depth == 0) issue(std::exchange(group, {}));
    return ncclSuccess;
}

ncclResult_t collective(ncclComm* c, cudaStream_t stream, const char* name, std::function<void()> work) {
    return submit({c, stream, name, std::move(work), false, 0, nullptr, 0});
}

// Runs `step` for pieces of at most one slot: step(first element, elements).
template <class F>
void in_pieces(size_t count, size_t element, F step) {
    size_t most = kSlotBytes / element;
    for (size_t at = 0; at < count; at += most) step(at, std::min(most, count - at));
}

}  // namespace

CUSIM_API void cusim_unknown_api(const char* name, const char* folder) {
    standin_stop((std::string(name) + " is not implemented; to add it, extend dev/cusim/" + folder).c_str());
}

CUSIM_API ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
CUSIM_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static int serial = 0;
    std::memset(id, 0, sizeof *id);
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    std::snprintf(id->internal, sizeof id->internal, "/cusim-nccl-%d-%d-%ld%09ld", int(getpid()), serial++,
                  long(t.tv_sec), t.tv_nsec);
    return ncclSuccess;
}

CUSIM_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    if (!comm || ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
    id.internal[sizeof id.internal - 1] = 0;
    int device = 0;
    cudaGetDevice(&device);
    *comm = new ncclComm{rank, ranks, device, std::make_shared<SharedArea>(id.internal, rank, ranks)};
    return ncclSuccess;
}
CUSIM_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                              ncclConfig_t*) {
    return ncclCommInitRank(comm, ranks, id, rank);
}
CUSIM_API ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int*) {
    if (count != 1) standin_stop("ncclCommInitAll with several devices: cusim runs one rank per process");
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    return ncclCommInitRank(comms, 1, id, 0);
}
CUSIM_API ncclResult_t ncclCommFinalize(ncclComm_t) {
    return ncclSuccess;
}
CUSIM_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    delete comm;
    return ncclSuccess;
}
CUSIM_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (comm) comm->area->abort();
    delete comm;
    return ncclSuccess;
}
CUSIM_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
    *result = comm->area->lost_rank() >= 0 ? ncclRemoteError : ncclSuccess;
    return ncclSuccess;
}
CUSIM_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    *count = comm->ranks;
    return ncclSuccess;
}
CUSIM_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    *rank = comm->rank;
    return ncclSuccess;
}
CUSIM_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
    *device = comm->device;
    return ncclSuccess;
}
CUSIM_API const char* ncclGetLastError(ncclComm_t) {
    return "";
}
CUSIM_API const char* ncclGetErrorString(ncclResult_t r) {
    switch (r) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "unhandled cuda error";
        case ncclSystemError:
            return "unhandled system error";
        case ncclInternalError:
            return "internal error";
        case ncclInvalidArgument:
            return "invalid argument";
        case ncclInvalidUsage:
            return "invalid usage";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInProgress:
            return "NCCL operation in progress";
        default:
            return "unknown result code";
    }
}

CUSIM_API ncclResult_t ncclGroupStart() {
    group_depth++;
    return ncclSuccess;
}
CUSIM_API ncclResult_t ncclGroupEnd() {
    if (group_depth == 0) return ncclInvalidUsage;
    if (--group_depth == 0) issue(std::exchange(group, {}));
    return ncclSuccess;
}

CUSIM_API ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t t,
                                     ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
    return collective(c, s, "ncclAllReduce", [=, area = c->area, ranks = c->ranks, rank = c->rank] {
        size_t e = bytes_of(t);
        auto* from =
            static_cast<const char*>(standin_bytes(send, count * e, false, "ncclAllReduce", "sendbuff"));
        auto* to = static_cast<char*>(standin_bytes(receive, count * e, true, "ncclAllReduce", "recvbuff"));
        area->agree({kAllReduce, t, op, 0, count}, "ncclAllReduce");
        in_pieces(count, e, [&](size_t at, size_t n) {
            std::memcpy(area->slot(rank), from + at * e, n * e);
            area->barrier("ncclAllReduce");
            reduce(*area, ranks, n, t, op, to + at * e);
            area->barrier("ncclAllReduce");
        });
    });
}

CUSIM_API ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t t,
                                  ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t s) {
    return collective(c, s, "ncclReduce", [=, area = c->area, ranks = c->ranks, rank = c->rank] {
        size_t e = bytes_of(t);
        auto* from =
            static_cast<const char*>(standin_bytes(send, count * e, false, "ncclReduce", "sendbuff"));
        char* to = rank == root
                       ? static_cast<char*>(standin_bytes(receive, count * e, true, "ncclReduce", "recvbuff"))
                       : nullptr;
        area->agree({kReduce, t, op, root, count}, "ncclReduce");
        in_pieces(count, e, [&](size_t at, size_t n) {
            std::memcpy(area->slot(rank), from + at * e, n * e);
            area->barrier("ncclReduce");
            if (to) reduce(*area, ranks, n, t, op, to + at * e);
            area->barrier("ncclReduce");
        });
    });
}

CUSIM_API ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t t,
                                         ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
    return collective(c, s, "ncclReduceScatter", [=, area = c->area, ranks = c->ranks, rank = c->rank] {
        size_t e = bytes_of(t);
        auto* from = static_cast<const char*>(
            standin_bytes(send, count * e * size_t(ranks), false, "ncclReduceScatter", "sendbuff"));
        auto* to =
            static_cast<char*>(standin_bytes(receive, count * e, true, "ncclReduceScatter", "recvbuff"));
        area->agree({kReduceScatter, t, op, 0, count}, "ncclReduceScatter");
        // In place, the result lies inside the input: it must not be written before all of the input has been
        // read.
        std::vector<char> result(count * e);
        for (int part = 0; part < ranks; part++)
            in_pieces(count, e, [&](size_t at, size_t n) {
                std::memcpy(area->slot(rank), from + (size_t(part) * count + at) * e, n * e);
                area->barrier("ncclReduceScatter");
                if (part == rank) reduce(*area, ranks, n, t, op, result.data() + at * e);
                area->barrier("ncclReduceScatter");
            });
        std::memcpy(to, result.data(), result.size());
    });
}

CUSIM_API ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t t,
                                     ncclComm_t c, cudaStream_t s) {
    return collective(c, s, "ncclAllGather", [=, area = c->area, ranks = c->ranks, rank = c->rank] {
        size_t e = bytes_of(t);
        auto* from =
            static_cast<const char*>(standin_bytes(send, count * e, false, "ncclAllGather", "sendbuff"));
        auto* to = static_cast<char*>(
            standin_bytes(receive, count * e * size_t(ranks), true, "ncclAllGather", "recvbuff"));
        area->agree({kAllGather, t, 0, 0, count}, "ncclAllGather");
        in_pieces(count, e, [&](size_t at, size_t n) {
            std::memcpy(area->slot(rank), from + at * e, n * e);
            area->barrier("ncclAllGather");
            for (int r = 0; r < ranks; r++)
                std::memcpy(to + (size_t(r) * count + at) * e, area->slot(r), n * e);
            area->barrier("ncclAllGather");
        });
    });
}

CUSIM_API ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t t,
                                     int root, ncclComm_t c, cudaStream_t s) {
    return collective(c, s, "ncclBroadcast", [=, area = c->area, rank = c->rank] {
        size_t e = bytes_of(t);
        auto* from =
            rank == root
                ? static_cast<const char*>(standin_bytes(send, count * e, false, "ncclBroadcast", "sendbuff"))
                : nullptr;
        auto* to = static_cast<char*>(standin_bytes(receive, count * e, true, "ncclBroadcast", "recvbuff"));
        area->agree({kBroadcast, t, 0, root, count}, "ncclBroadcast");
        in_pieces(count, e, [&](size_t at, size_t n) {
            if (from) std::memcpy(area->slot(root), from + at * e, n * e);
            area->barrier("ncclBroadcast");
            std::memcpy(to + at * e, area->slot(root), n * e);
            area->barrier("ncclBroadcast");
        });
    });
}
CUSIM_API ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t t, int root, ncclComm_t c,
                                 cudaStream_t s) {
    return ncclBroadcast(buffer, buffer, count, t, root, c, s);
}

CUSIM_API ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t t, int peer, ncclComm_t c,
                                cudaStream_t s) {
    if (!c || peer < 0 || peer >= c->ranks) return ncclInvalidArgument;
    return submit({c, s, "ncclSend", nullptr, true, peer, data, count * bytes_of(t)});
}
CUSIM_API ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t t, int peer, ncclComm_t c,
                                cudaStream_t s) {
    if (!c || peer < 0 || peer >= c->ranks) return ncclInvalidArgument;
    return submit({c, s, "ncclRecv", nullptr, false, peer, data, count * bytes_of(t)});
}
