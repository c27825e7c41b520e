// cuda_comm.h: the collectives of comm.h on GPUs: NCCL on a stream of its own.
//
// The first call of a batch meets the other ranks on the host before it is handed to NCCL, and finish() meets
// them again before it waits: NCCL cannot say who is missing, ranks.h can. The waits look at NCCL's own errors
// too; an error aborts the communicator, so that no kernel waits for ever. Between a call and finish(), do
// nothing that waits for the device.
#pragma once
#include <nccl.h>

template <class T>
constexpr ncclDataType_t nccl_type() {
    if constexpr (std::is_same_v<T, float>) return ncclFloat32;
    if constexpr (std::is_same_v<T, double>) return ncclFloat64;
    if constexpr (std::is_same_v<T, int32_t>) return ncclInt32;
    if constexpr (std::is_same_v<T, int64_t>) return ncclInt64;
    if constexpr (std::is_same_v<T, bf16>) return ncclBfloat16;
}

// The GPU of this rank: its own one of this machine, or the only one that the launcher lets it see.
inline int pick_device(const Ranks& ranks) {
    int count = 0;
    CUDA_CHECK(cudaGetDeviceCount(&count));
    if (count == 1 || ranks.local_rank() < count) return count == 1 ? 0 : ranks.local_rank();
    fail(format("%d ranks on this machine, and %d GPUs", ranks.local_size(), count),
         "start one rank for each GPU");
}

template <class Real>
class Comm<CudaDevice<Real>> {
  public:
    // Meets the other ranks. Errors: two ranks have the same GPU.
    Comm(CudaDevice<Real>& device, Ranks& ranks) : ranks(ranks), device_(device) {
        if (ranks.size() == 1) return;
        check_own_device();
        ncclUniqueId id;
        std::memset(&id, 0, sizeof id);
        if (ranks.first()) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
        const std::string bytes = ranks.broadcast("NCCL's id", {id.internal, sizeof id.internal});
        std::memcpy(id.internal, bytes.data(), std::min(bytes.size(), sizeof id.internal));
        // Ahead of the layers' kernels: what is on its way should not wait for what is not needed yet.
        int least, greatest;
        CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
        CUDA_CHECK(cudaEventCreateWithFlags(&given_, cudaEventDisableTiming));
        CUDA_CHECK(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming));
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        check(ncclCommInitRankConfig(&nccl_, ranks.size(), id, ranks.rank(), &config), "ncclCommInitRank");
    }
    ~Comm() {
        if (nccl_ && std::uncaught_exceptions() == 0) {
            try {
                ranks.barrier(
                    "the end");       // a rank that leaves while another still receives looks like a dead one
            } catch (const Error&) {  // that one says why itself
            }
            ncclCommDestroy(nccl_);
        } else if (nccl_) {
            ncclCommAbort(nccl_);
        }
        if (given_) cudaEventDestroy(given_);
        if (done_) cudaEventDestroy(done_);
        if (stream_) cudaStreamDestroy(stream_);
    }
    Comm(const Comm&) = delete;
    Comm& operator=(const Comm&) = delete;
    Ranks& ranks;

    Shard shard(size_t n) const { return shard_of(n, ranks.rank(), ranks.size()); }

    template <class T>
    void reduce_scatter(T* x, size_t n) {
        start<T>("reduce_scatter", n, [&] {
            const Equal e(n, ranks.size());
            if (e.each)
                check(ncclReduceScatter(x, x + e.each * size_t(ranks.rank()), e.each, nccl_type<T>(), ncclSum,
                                        nccl_, stream_));
            if (e.rest)
                check(
                    ncclReduce(x + e.at, x + e.at, e.rest, nccl_type<T>(), ncclSum, e.last, nccl_, stream_));
        });
    }
    template <class T>
    void all_gather(T* x, size_t n) {
        start<T>("all_gather", n, [&] {
            const Equal e(n, ranks.size());
            if (e.each)
                check(ncclAllGather(x + e.each * size_t(ranks.rank()), x, e.each, nccl_type<T>(), nccl_,
                                    stream_));
            if (e.rest)
                check(ncclBroadcast(x + e.at, x + e.at, e.rest, nccl_type<T>(), e.last, nccl_, stream_));
        });
    }
    template <class T>
    void all_reduce(T* x, size_t n) {
        start<T>("all_reduce", n,
                 [&] { check(ncclAllReduce(x, x, n, nccl_type<T>(), ncclSum, nccl_, stream_)); });
    }
    template <class T>
    void broadcast(T* x, size_t n) {
        start<T>("broadcast", n, [&] { check(ncclBroadcast(x, x, n, nccl_type<T>(), 0, nccl_, stream_)); });
    }

    // The host itself waits: only so can it notice that another rank is gone.
    void finish() {
        if (last_.empty()) return;
        const std::string what = std::exchange(last_, "");
        or_abort([&] {
            ranks.barrier("end of " + what);
            CUDA_CHECK(cudaEventRecord(done_, stream_));
            patiently(what, [&] {
                ncclResult_t error;
                ncclCommGetAsyncError(nccl_, &error);  // before the query: what is done is done
                const cudaError_t status = cudaEventQuery(done_);
                if (status == cudaSuccess) return true;  // even if another rank has left since
                if (status != cudaErrorNotReady) CUDA_CHECK(status);
                if (error != ncclSuccess && error != ncclInProgress) refuse(error, what);
                return false;
            });
        });
    }

  private:
    // NCCL wants equal parts: the last rank's surplus travels by itself.
    struct Equal {
        size_t each, at, rest;
        int last;
        Equal(size_t n, int ranks)
            : each(shard_of(n, 0, ranks).size), at(each * size_t(ranks)), rest(n - at), last(ranks - 1) {}
    };

    template <class T, class Calls>
    void start(const char* operation, size_t n, Calls calls) {
        if (ranks.size() == 1 || n == 0) return;
        const std::string what = format("%s of %zu %s", operation, n, type_name<T>());
        or_abort([&] {
            if (last_.empty()) ranks.barrier(what);
            last_ = what;
            CUDA_CHECK(cudaEventRecord(given_, device_.stream));
            CUDA_CHECK(cudaStreamWaitEvent(stream_, given_, 0));
            check(ncclGroupStart());
            calls();
            check(ncclGroupEnd(), what);
        });
    }

    // A kernel of NCCL that waits for a rank that is gone would keep cudaFree() waiting, and so every destructor
    // on the way of an error.
    template <class Step>
    void or_abort(Step step) {
        try {
            step();
        } catch (...) {
            ncclCommAbort(std::exchange(nccl_, nullptr));
            throw;
        }
    }

    void check(ncclResult_t status, const std::string& what = "a call") {
        if (status == ncclInProgress && nccl_)
            patiently(what, [&] {
                ncclCommGetAsyncError(nccl_, &status);
                return status != ncclInProgress;
            });
        if (status != ncclSuccess && status != ncclInProgress) refuse(status, what);
    }
    [[noreturn]] void refuse(ncclResult_t status, const std::string& what) {
        fail("NCCL: " + what + ": " + ncclGetErrorString(status),
             "see what the other ranks say; NCCL_DEBUG=INFO tells more");
    }
    // All ranks have come to this; now NCCL must end within the limit.
    template <class Ready>
    void patiently(const std::string& what, Ready ready) {
        Timer timer;
        ranks.wait(what, [&](std::vector<bool>&) {
            if (ready()) return true;
            if (timer.seconds() > ranks.timeout())
                fail(format("NCCL: all ranks have come to %s, and it has not ended within %g s", what.c_str(),
                            ranks.timeout()),
                     "see what the other ranks say; NCCL_DEBUG=INFO tells more");
            return false;
        });
    }

    void check_own_device() {
        const cudaDeviceProp& p = device_.properties;
        const std::string id = format("%x:%x:%x ", p.pciDomainID, p.pciBusID, p.pciDeviceID) +
                               std::string(p.uuid.bytes, sizeof p.uuid.bytes);
        const std::vector<std::string> all = ranks.all_gather("the devices", ranks.machine() + id);
        for (int r = 0; r < ranks.size(); r++)
            if (r != ranks.rank() && all[size_t(r)] == all[size_t(ranks.rank())])
                fail(format("ranks %d and %d have the same GPU, %s", std::min(r, ranks.rank()),
                            std::max(r, ranks.rank()), p.name),
                     "start one rank for each GPU");
    }

    CudaDevice<Real>& device_;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t given_ = nullptr, done_ = nullptr;
    ncclComm_t nccl_ = nullptr;
    std::string last_;  // the newest operation since finish()
};
