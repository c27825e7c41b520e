// ranks.cu: two processes and every collective. Argument "missing": rank 1 leaves out a collective;
// "different": it calls another one; "dies": it ends. Then rank 0 must say which rank is missing. "aborts":
// it aborts at the end, an asynchronous error to rank 0.
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "../../examples/example.h"

static int failures = 0;
static void expect(bool good, const char* what, int rank) {
    if (good) return;
    std::printf("rank %d: wrong: %s\n", rank, what);
    failures++;
}
#define NCCL(call) expect((call) == ncclSuccess, #call, rank)

static int run(int rank, ncclUniqueId id, const char* fault, pid_t other) {
    const int n = 300001;
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, 2, id, rank));
    if (rank == 1 && !std::strcmp(fault, "dies")) _exit(0);
    std::vector<float> mine(2 * n);
    for (int i = 0; i < 2 * n; i++) mine[i] = float(i % 1000 + rank * 10);
    DeviceArray<float> x(mine), y(2 * n);
    cudaStream_t s;
    CUDA(cudaStreamCreate(&s));
    if (rank == 1 && !std::strcmp(fault, "missing")) {
        sleep(4);
        return 0;
    }
    if (rank == 1 && !std::strcmp(fault, "different"))
        ncclBroadcast(x.data, y.data, n, ncclFloat, 0, comm, s);
    NCCL(ncclAllReduce(x.data, y.data, n, ncclFloat, ncclSum, comm, s));
    CUDA(cudaStreamSynchronize(s));
    auto h = y.host();
    expect(h[0] == 10 && h[1234] == 2 * 234 + 10 && h[n - 1] == 2 * ((n - 1) % 1000) + 10, "all-reduce",
           rank);
    NCCL(ncclAllReduce(x.data, y.data, n, ncclFloat, ncclAvg, comm, s));
    CUDA(cudaStreamSynchronize(s));
    expect(y.host()[7] == 12, "average", rank);
    NCCL(ncclReduceScatter(x.data, y.data, n, ncclFloat, ncclMax, comm, s));
    CUDA(cudaStreamSynchronize(s));
    expect(y.host()[3] == (rank * n + 3) % 1000 + 10, "reduce-scatter", rank);
    NCCL(ncclAllGather(x.data, y.data, n, ncclFloat, comm, s));
    CUDA(cudaStreamSynchronize(s));
    h = y.host();
    expect(h[5] == 5 && h[n + 5] == 15, "all-gather", rank);
    NCCL(ncclBroadcast(x.data, y.data, n, ncclFloat, 1, comm, s));
    CUDA(cudaStreamSynchronize(s));
    expect(y.host()[9] == 19, "broadcast", rank);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(x.data, n, ncclFloat, 1 - rank, comm, s));
    NCCL(ncclRecv(y.data, n, ncclFloat, 1 - rank, comm, s));
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(s));
    expect(y.host()[n - 1] == float((n - 1) % 1000 + (1 - rank) * 10), "send and receive", rank);
    if (rank == 0) {  // the other leaves early: having done its part it is not missed
        int status = 0;
        waitpid(other, &status, 0);
        failures += status != 0;
        ncclResult_t state;
        NCCL(ncclCommGetAsyncError(comm, &state));
        expect(state == (*fault ? ncclRemoteError : ncclSuccess), "asynchronous error", rank);
    }
    if (rank == 1 && !std::strcmp(fault, "aborts")) {
        NCCL(ncclCommAbort(comm));
        return failures;
    }
    NCCL(ncclCommDestroy(comm));
    return failures;
}

int main(int argc, char** argv) {
    const char* fault = argc > 1 ? argv[1] : "";
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess) return 1;
    pid_t child = fork();  // before the first CUDA call
    int failed = run(child == 0 ? 1 : 0, id, fault, child);
    if (child == 0) _exit(failed > 0);
    std::printf("ranks: %d failed\n", failed);
    return failed > 0;
}
