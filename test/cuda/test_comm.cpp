// comm.h with NCCL: two processes, started by environment variables, each with its own device. Test cases with
// a dot in their tag are what one rank does.
#include <csignal>
#include <thread>

#include "../catch.h"
#include "../collectives.h"

namespace {

// A rank on its own device, and its communicator.
int as_rank(double timeout, const std::function<void(CudaDevice<float>&, Comm<CudaDevice<float>>&)>& body) {
    return as_program(timeout, [&](Ranks& ranks) {
        CudaDevice<float> device(pick_device(ranks));
        Comm<CudaDevice<float>> comm(device, ranks);
        body(device, comm);
    });
}
Launched launch(const std::string& tag, const std::string& setup = "true") {
    ScratchFolder dir;
    return launch_by_file(dir, 2, test_case(tag), "export CUSIM_NCCL_TIMEOUT=30 CUSIM_DEVICES=2; " + setup);
}
}  // namespace

TEST_CASE("rank: collectives on the device", "[.rank-cuda-collectives]") {
    const int code = as_rank(60, [](CudaDevice<float>& device, Comm<CudaDevice<float>>& comm) {
        REQUIRE(device.ordinal == comm.ranks.rank());
        for (size_t n : {0, 1, 127, 128, 129, 1000}) {
            all_collectives<float>(device, comm, n);
            all_collectives<double>(device, comm, n);
            all_collectives<int32_t>(device, comm, n);
            all_collectives<int64_t>(device, comm, n);
            all_collectives<bf16>(device, comm, n);
        }
        // Several at once, in the order of the device's stream.
        Buffer<float, CudaDevice<float>> x(device, 500, Memory::workspace), y(device, 300, Memory::workspace);
        std::vector<float> host(500, 1.0f);
        device.upload(x.data(), host.data(), 500 * sizeof(float));
        comm.all_reduce(x.data(), 500);
        device.upload(y.data(), host.data(), 300 * sizeof(float));
        comm.reduce_scatter(y.data(), 300);
        comm.all_gather(y.data(), 300);
        comm.finish();
        device.copy(x.data(), y.data(), 300 * sizeof(float));
        device.download(host.data(), x.data(), 500 * sizeof(float));
        REQUIRE(host == std::vector<float>(500, 2.0f));
        comm.finish();  // nothing to wait for
    });
    REQUIRE(code == 0);
}
TEST_CASE("comm: every collective, every type, on two devices", "[cuda][comm]") {
    if (!several_devices()) return;
    all_well(launch("[.rank-cuda-collectives]"));
    all_well(
        launch("[.rank-cuda-collectives]", "export CUSIM_STREAMS=lazy:3"));  // nothing by luck of the order
}

TEST_CASE("comm: one rank needs no NCCL", "[cuda][comm]") {
    Ranks ranks;
    CudaDevice<float> device(pick_device(ranks));
    Comm<CudaDevice<float>> comm(device, ranks);
    all_collectives<float>(device, comm, 1000);
}

TEST_CASE("rank: sleeps on the device", "[.rank-cuda-sleeps]") {
    const int code = as_rank(2, [](CudaDevice<float>& device, Comm<CudaDevice<float>>& comm) {
        Buffer<float, CudaDevice<float>> x(device, 1000, Memory::workspace);
        comm.all_reduce(x.data(), 1000);
        comm.finish();
        if (comm.ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(5));
        comm.reduce_scatter(x.data(), 1000);
        comm.finish();
    });
    REQUIRE(code == 0);
}
TEST_CASE("rank: is killed on the device", "[.rank-cuda-killed]") {
    const int code = as_rank(5, [](CudaDevice<float>& device, Comm<CudaDevice<float>>& comm) {
        Buffer<float, CudaDevice<float>> x(device, 1000, Memory::workspace);
        comm.all_reduce(x.data(), 1000);
        if (comm.ranks.rank() == 1) ::raise(SIGKILL);
        comm.finish();
    });
    REQUIRE(code == 0);
}
TEST_CASE("comm: a late and a killed rank on a device are named", "[cuda][comm]") {
    if (!several_devices()) return;
    const Launched late = launch("[.rank-cuda-sleeps]"), killed = launch("[.rank-cuda-killed]");
    INFO(late.all_err() << killed.all_err());
    CHECK(has(late.err[0],
              "error: rank: rank 1 of 2 has not come to reduce_scatter of 1000 float within 2 s\nhint: "));
    // Under CUSIM_STREAMS=lazy the stand-in notices first.
    CHECK((has(killed.err[0],
               "error: rank: rank 1 of 2 has ended before end of all_reduce of 1000 float\nhint: ") ||
           has(killed.err[0], "rank 1 has ended")));
    CHECK((has(late.err[1], "has ended")));  // by its time the first rank is gone
    for (int code : {late.code[0], late.code[1], killed.code[0], killed.code[1]})
        CHECK((code != 0 && code != 124));
}

TEST_CASE("comm: two ranks on one device are refused", "[cuda][comm]") {
    const Launched l = launch("[.rank-cuda-collectives]", "export CUSIM_DEVICES=1 CUDA_VISIBLE_DEVICES=0");
    INFO(l.all_err());
    CHECK(has(l.err[0], "ranks 0 and 1 have the same GPU, "));
}
