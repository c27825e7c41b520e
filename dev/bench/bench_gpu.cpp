// bench_gpu.cpp: one card in at most nine minutes, the most valuable figures first. Synthetic weights of the
// 1.5B shape (Qwen2.5-Math-1.5B); a table on the terminal, and OUT (JSON) written anew after every stage, so
// that an interrupted run is still worth something. A stage that no longer fits the budget is skipped.
//
//   bench_gpu [--toy] [--budget SECONDS] [--out FILE] [--peers COMMAND]
//
// --toy: sizes of a few tokens, to see under dev/cusim that it runs. --peers: a command that prints lines
// "name value unit", run last (dev/bench/bench_gpu_peers.py: PyTorch on the same shapes).
//
// FLOP/s count visible pairs of query and key only (window-aware): 4 E a pair and head forward, 10 E backward.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "swarr/cispo.h"
#include "swarr/files.h"
#include "swarr/generate.cuh"
#include "swarr/trainer.cuh"

namespace {

using Gpu = CudaDevice<bf16>;

struct Bench {
    bool toy = false;
    double budget = 530;
    std::string out = "bench_gpu.json", peers;
    Timer clock;
    Json results = Json::array();

    // Median of the times of `repeats` calls between events, after three warm-ups; seconds.
    double time(Gpu& gpu, const std::function<void()>& body, int repeats = 10) {
        for (int i = 0; i < (toy ? 1 : 3); i++) body();
        gpu.synchronize();
        if (toy) repeats = 1;
        std::vector<float> ms(static_cast<size_t>(repeats));
        cudaEvent_t from, to;
        CUDA_CHECK(cudaEventCreate(&from));
        CUDA_CHECK(cudaEventCreate(&to));
        for (float& t : ms) {
            CUDA_CHECK(cudaEventRecord(from, gpu.stream));
            body();
            CUDA_CHECK(cudaEventRecord(to, gpu.stream));
            CUDA_CHECK(cudaEventSynchronize(to));
            CUDA_CHECK(cudaEventElapsedTime(&t, from, to));
        }
        cudaEventDestroy(from);
        cudaEventDestroy(to);
        std::sort(ms.begin(), ms.end());
        return std::max(1e-9, double(ms[ms.size() / 2]) * 1e-3);
    }
    void put(Json row) { results.push_back(std::move(row)); }

    void stage(const char* name, double seconds, const std::function<void()>& body) {
        if (!toy && clock.seconds() + seconds > budget) {
            std::printf("== %s: skipped, %.0f s of %.0f are gone\n", name, clock.seconds(), budget);
            put({{"stage", name}, {"skipped", true}});
        } else {
            std::printf("== %s\n", name);
            try {
                body();
            } catch (const Error& e) {
                std::printf("   failed: %s\n", e.what());
                put({{"stage", name}, {"failed", e.what()}});
            }
        }
        std::fflush(stdout);
        write_whole(out, Json({{"seconds", clock.seconds()}, {"results", results}}).dump(1) + "\n");
    }
};

ModelConfig shape_1_5b(bool toy, int window, int positions) {
    ModelConfig c;
    c.architecture = "qwen2";
    c.layers = toy ? 2 : 28, c.hidden = toy ? 64 : 1536, c.heads = toy ? 4 : 12, c.kv_heads = 2;
    c.head_dim = toy ? 16 : 128, c.ff = toy ? 96 : 8960, c.vocab = toy ? 500 : 151936;
    c.tied = c.qkv_bias = true;
    c.max_positions = positions;
    c.window.assign(size_t(c.layers), window);
    return c;
}

// Normal numbers, the same million again and again; norms 1.
void fill(Model<Gpu>& model) {
    std::vector<float> block(1 << 20);
    for (size_t i = 0; i < block.size(); i++) block[i] = float(0.02 * normal_at(1, Stream::init, 0, i));
    const Layout& at = model.layout;
    for (size_t i = 0; i < at.matrices; i += block.size())
        model.dev.put(model.params() + i, block.data(), std::min(block.size(), at.matrices - i));
    std::fill(block.begin(), block.end(), 1.0f);
    for (size_t i = at.matrices; i < at.total; i += block.size())
        model.dev.put(model.params() + i, block.data(), std::min(block.size(), at.total - i));
    model.weights_changed();
}

double pairs(double T, double W) {
    return W == 0 || W >= T ? T * (T + 1) / 2 : W * (W + 1) / 2 + (T - W) * W;
}

// Random numbers on the device.
Buffer<bf16, Gpu> random_tensor(Gpu& gpu, size_t n) {
    Buffer<bf16, Gpu> x(gpu, n, Memory::workspace);
    std::vector<float> block(std::min(n, size_t(1) << 20));
    for (size_t i = 0; i < block.size(); i++) block[i] = float(normal_at(2, Stream::init, 0, i));
    for (size_t i = 0; i < n; i += block.size())
        gpu.put(x.data() + i, block.data(), std::min(block.size(), n - i));
    return x;
}

struct Peak {
    double copy = 0, matmul = 0;  // bytes/s read and written together, FLOP/s
};

void ceilings(Bench& b, Gpu& gpu, Peak& peak) {
    const size_t n = b.toy ? 1 << 16 : size_t(4) << 30;
    Buffer<char, Gpu> from(gpu, n, Memory::workspace), to(gpu, n, Memory::workspace);
    peak.copy = 2.0 * double(n) / b.time(gpu, [&] { gpu.copy(to.data(), from.data(), n); });
    const int s = b.toy ? 128 : 8192;
    Buffer<bf16, Gpu> x = random_tensor(gpu, size_t(s) * s), w = random_tensor(gpu, size_t(s) * s),
                      y(gpu, size_t(s) * s, Memory::workspace);
    peak.matmul = 2.0 * s * s * s / b.time(gpu, [&] {
        matmul_forward(gpu, y.data(), x.data(), Weight<bf16>{w.data(), nullptr},
                       static_cast<const bf16*>(nullptr), s, s, s);
    });
    std::printf("   copy %.0f GB/s, matmul %d^3 %.0f TFLOP/s\n", 1e-9 * peak.copy, s, 1e-12 * peak.matmul);
    b.put({{"stage", "ceilings"}, {"copy_bytes_per_s", peak.copy}, {"matmul_flops", peak.matmul}});
}

// Against the CPU device, in bfloat16's places; what is wrong is not worth timing.
void correctness(Bench& b, Gpu& gpu) {
    const int N = b.toy ? 70 : 700, H = 12, G = 2, E = b.toy ? 16 : 128, Q = (H + 2 * G) * E;
    for (int W : {0, 1, 64, 200}) {
        std::vector<float> host(size_t(N) * Q), exact(size_t(N) * H * E), lse(size_t(N) * H), space;
        for (size_t i = 0; i < host.size(); i++)
            host[i] = __bfloat162float(__float2bfloat16_rn(float(normal_at(3, Stream::init, 0, i))));
        const int start[2] = {0, N};
        Cpu cpu;
        attention_forward(cpu, exact.data(), lse.data(), host.data(), {start, 1, N}, Window{W, 0}, H, G, E);
        Buffer<bf16, Gpu> qkv(gpu, host.size(), Memory::workspace), out(gpu, exact.size(), Memory::workspace);
        Buffer<float, Gpu> lse_gpu(gpu, lse.size(), Memory::workspace);
        Buffer<int, Gpu> bounds(gpu, 2, Memory::workspace);
        gpu.put(qkv.data(), host.data(), host.size());
        gpu.upload(bounds.data(), start, sizeof start);
        attention_forward(gpu, out.data(), lse_gpu.data(), qkv.data(), {bounds.data(), 1, N}, Window{W, 0}, H,
                          G, E);
        const float* result = gpu.view(out.data(), exact.size(), space);
        double worst = 0;
        for (size_t i = 0; i < exact.size(); i++)
            worst = std::max(worst, double(std::fabs(result[i] - exact[i])));
        std::printf("   attention, %d tokens, window %d: largest error %.4f\n", N, W, worst);
        b.put({{"stage", "correctness"}, {"window", W}, {"largest_error", worst}});
        if (!(worst < 0.05)) fail("attention is wrong", "run make test-gpu");
    }
}

void attention_kernels(Bench& b, Gpu& gpu) {
    const int N = b.toy ? 256 : 32768, H = 12, G = 2, E = b.toy ? 16 : 128, Q = (H + 2 * G) * E;
    Buffer<bf16, Gpu> qkv = random_tensor(gpu, size_t(N) * Q), dout = random_tensor(gpu, size_t(N) * H * E),
                      out(gpu, size_t(N) * H * E, Memory::workspace),
                      dqkv(gpu, size_t(N) * Q, Memory::workspace);
    Buffer<float, Gpu> lse(gpu, size_t(N) * H, Memory::workspace);
    for (int docs : {1, 2, 4}) {
        const int T = N / docs;
        std::vector<int> start;
        for (int d = 0; d <= docs; d++) start.push_back(d * T);
        Buffer<int, Gpu> bounds(gpu, start.size(), Memory::workspace);
        gpu.upload(bounds.data(), start.data(), start.size() * sizeof(int));
        const Documents documents{bounds.data(), docs, N};
        for (int W : {0, 8192, 4096, 2048}) {
            if (b.toy) W /= 128;
            if (W >= T) continue;
            const double flops = 4.0 * E * H * docs * pairs(T, W);
            const double forward = b.time(gpu, [&] {
                attention_forward(gpu, out.data(), lse.data(), qkv.data(), documents, Window{W, 0}, H, G, E);
            });
            const double backward = b.time(gpu, [&] {
                attention_backward(gpu, dqkv.data(), dout.data(), out.data(), lse.data(), qkv.data(),
                                   documents, Window{W, 0}, H, G, E);
            });
            std::printf(
                "   %d x %5d, window %5d: forward %7.3f ms %4.0f TFLOP/s, backward %7.3f ms %4.0f TFLOP/s\n",
                docs, T, W, 1e3 * forward, 1e-12 * flops / forward, 1e3 * backward,
                2.5e-12 * flops / backward);
            b.put({{"stage", "attention"},
                   {"documents", docs},
                   {"tokens", T},
                   {"window", W},
                   {"forward_s", forward},
                   {"backward_s", backward},
                   {"forward_flops", flops / forward},
                   {"backward_flops", 2.5 * flops / backward}});
        }
    }
}

// A decoding step of B sequences at position n: what the rollout engine launches, as one graph.
void decoding(Bench& b, Gpu& gpu, const Peak& peak) {
    const std::vector<int> contexts = b.toy ? std::vector<int>{64} : std::vector<int>{32768, 4096, 16384},
                           batches =
                               b.toy ? std::vector<int>{1, 3} : std::vector<int>{76, 1, 8, 32, 128, 256};
    for (int n : contexts) {
        std::map<int, double> full;
        for (int W : {0, b.toy ? 16 : 4096}) {
            Model<Gpu> model(gpu, shape_1_5b(b.toy, W, n + 1));
            fill(model);
            const ModelConfig& c = model.config;
            model.reserve_positions(n + 1);
            for (int B : batches) {
                const size_t slot =
                    KvCache<Gpu>::bytes_per_slot(layer_windows(c), n + 1, c.heads, c.kv_heads, c.head_dim);
                if (double(slot) * B + 2e9 * !b.toy > gpu.free_memory()) continue;
                KvCache<Gpu> cache(gpu, layer_windows(c), B, n + 1, c.heads, c.kv_heads, c.head_dim);
                Buffer<float, Gpu> logits(gpu, size_t(B) * c.vocab, Memory::workspace),
                    logp(gpu, size_t(B), Memory::workspace), uniform(gpu, size_t(B), Memory::workspace);
                std::vector<int> ints;
                for (int of : {0, 1, 2})  // token, slot (also the row to draw from), position
                    for (int i = 0; i < B; i++) ints.push_back(of == 0 ? 5 + i : of == 1 ? i : n);
                Buffer<int, Gpu> step(gpu, ints.size(), Memory::workspace),
                    drawn(gpu, size_t(B), Memory::workspace);
                gpu.upload(step.data(), ints.data(), ints.size() * sizeof(int));
                const int *token = step.data(), *slots = token + B, *position = slots + B;
                Gpu::Graph graph;
                auto run = [&] {
                    gpu.replay(graph, [&] {
                        model.decode(token, position, B, [&](int layer, bf16* att, const bf16* qkv) {
                            cache_append(gpu, cache, layer, qkv, slots, position, B, c.heads);
                            attention_decode(gpu, att, qkv, cache, layer, slots, position, B, c.heads);
                        });
                        head_logits(gpu, logits.data(), model.hidden(), model.head(), B, c.hidden, c.vocab);
                        sample_tokens(gpu, drawn.data(), logp.data(), logits.data(), slots, uniform.data(), B,
                                      c.vocab, Sampling{});
                    });
                };
                run();
                const double seconds = b.time(gpu, run, 20);
                const double keys = W ? std::min(W, n + 1) : n + 1;
                const double bytes = 2.0 * double(model.layout.total) +
                                     B * keys * 2.0 * c.layers * c.kv_heads * c.head_dim * 2.0;
                if (W == 0) full[B] = seconds;
                const double ratio = W && full.count(B) ? full[B] / seconds : 0;
                std::printf(
                    "   context %5d, window %4d, batch %3d: %8.3f ms, %8.0f tokens/s, %5.0f GB/s (%2.0f%% of "
                    "copy)",
                    n, W, B, 1e3 * seconds, B / seconds, 1e-9 * bytes / seconds,
                    100 * bytes / seconds / peak.copy);
                std::printf(ratio > 0 ? ", %.2f x full attention\n" : "\n", ratio);
                b.put({{"stage", "decoding"},
                       {"context", n},
                       {"window", W},
                       {"batch", B},
                       {"step_s", seconds},
                       {"tokens_per_s", B / seconds},
                       {"bytes_per_s", bytes / seconds},
                       {"x_full", ratio}});
            }
        }
    }
}

void training(Bench& b, Gpu& gpu, const Peak& peak) {
    const int N = b.toy ? 96 : 32768;
    for (int docs : {1, 4})
        for (int W : {b.toy ? 16 : 4096, 0, b.toy ? 8 : 2048}) {
            const int T = N / docs;
            const ModelConfig c = shape_1_5b(b.toy, W, T);
            Model<Gpu> model(gpu, c);
            fill(model);
            Trainer<Gpu> trainer(model, TrainOptions{}, N, 0);
            std::vector<Sequence> batch(static_cast<size_t>(docs));
            Rng rng(1, Stream::test);
            for (Sequence& s : batch)
                for (int i = 0; i < T; i++)
                    s.token.push_back(int(rng.below(uint32_t(c.vocab)))),
                        s.target.push_back(int(rng.below(uint32_t(c.vocab))));
            double loss = 0, flops = step_cost(c, batch).flops, planned = 0;
            for (auto& [name, bytes] : training_memory<Gpu>(c, N, 0)) planned += bytes;
            const double seconds = b.time(
                gpu,
                [&] {
                    loss = trainer.supervised(batch, true);
                    trainer.update(loss);
                },
                3);
            std::printf(
                "   %d x %5d, window %4d: %7.1f ms, %7.0f tokens/s, %4.0f TFLOP/s, MFU %2.0f%% of the "
                "matmul above; planned %s; loss %.3f\n",
                docs, T, W, 1e3 * seconds, N / seconds, 1e-12 * flops / seconds,
                100 * flops / seconds / peak.matmul, bytes_text(planned).c_str(), loss);
            b.put({{"stage", "training"},
                   {"documents", docs},
                   {"tokens", T},
                   {"window", W},
                   {"step_s", seconds},
                   {"tokens_per_s", N / seconds},
                   {"flops", flops / seconds},
                   {"planned_bytes", planned}});
        }
}

// Groups of answers, and one update on them.
void reinforcement(Bench& b, Gpu& gpu) {
    const int prompts = b.toy ? 2 : 32, group = b.toy ? 2 : 8, prompt = b.toy ? 5 : 200,
              answer = b.toy ? 6 : 1024;
    for (int W : {0, b.toy ? 8 : 512}) {
        const ModelConfig c = shape_1_5b(b.toy, W, prompt + answer + 1);
        Model<Gpu> model(gpu, c);
        fill(model);
        Trainer<Gpu> trainer(model, TrainOptions{}, b.toy ? 64 : 16384, 0);
        GenerateOptions o;
        o.slots = prompts * group, o.limit = prompt + answer, o.max_tokens_per_pass = b.toy ? 64 : 16384;
        Timer timer;
        std::vector<Trajectory> trajectories;
        {
            Generator<Gpu> generator(model, o);
            Rng rng(1, Stream::test);
            std::vector<Prompt> all(static_cast<size_t>(prompts));
            for (int i = 0; i < prompts; i++) {
                Prompt& p = all[size_t(i)];
                for (int t = 0; t < prompt; t++) p.ids.push_back(int(rng.below(uint32_t(c.vocab))));
                p.key = uint32_t(i), p.tag = i,
                p.max_new_tokens = answer / 2 + int(rng.below(uint32_t(answer / 2)));
                p.samples.clear();
                for (int g = 0; g < group; g++) p.samples.push_back(g);
                generator.add(p);
            }
            auto finish = [&](Rollout&& r) {
                Trajectory t;
                t.ids = all[size_t(r.tag)].ids;
                t.prompt = int(t.ids.size());
                t.ids.insert(t.ids.end(), r.ids.begin(), r.ids.end());
                t.rollout_logp = t.old_logp = r.logp;
                t.advantage = r.sample % 2 ? 1 : -1;
                trajectories.push_back(std::move(t));
            };
            while (generator.step(finish)) continue;
        }
        const double rollout = timer.seconds();
        double tokens = 0;
        for (const Trajectory& t : trajectories) tokens += t.answer();
        Timer train_timer;
        CispoStatistics stats;
        UpdateResult update = trainer.update(cispo_gradient(trainer, trajectories, CispoOptions{}, stats));
        const double train = train_timer.seconds();
        std::printf(
            "   window %4d: %.0f tokens, rollout %.2f s (%.0f tokens/s), update %.2f s, log-probabilities "
            "apart "
            "%.4f at most, norm %.3f\n",
            W, tokens, rollout, tokens / rollout, train, stats.gap_max, update.grad_norm);
        b.put({{"stage", "reinforcement"},
               {"window", W},
               {"tokens", tokens},
               {"rollout_s", rollout},
               {"update_s", train},
               {"logprob_abs_diff_max", stats.gap_max}});
    }
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("bench_gpu", [&] {
        Bench b;
        for (int i = 1; i < argc; i++) {
            const std::string a = argv[i];
            if (a == "--toy")
                b.toy = true;
            else if (i + 1 < argc && a == "--budget")
                b.budget = std::atof(argv[++i]);
            else if (i + 1 < argc && a == "--out")
                b.out = argv[++i];
            else if (i + 1 < argc && a == "--peers")
                b.peers = argv[++i];
            else
                throw UsageError("unknown option " + a,
                                 "bench_gpu [--toy] [--budget S] [--out FILE] [--peers COMMAND]");
        }
        Gpu gpu;
        std::printf("%s, %d multiprocessors, %s free\n", gpu.properties.name, gpu.multiprocessors(),
                    bytes_text(gpu.free_memory()).c_str());
        b.put({{"device", gpu.properties.name}, {"multiprocessors", gpu.multiprocessors()}, {"toy", b.toy}});
        Peak peak;
        b.stage("ceilings", 10, [&] { ceilings(b, gpu, peak); });
        b.stage("correctness", 10, [&] { correctness(b, gpu); });
        b.stage("attention, H 12, G 2, E 128", 20, [&] { attention_kernels(b, gpu); });
        b.stage("decoding, 1.5B", 120, [&] { decoding(b, gpu, peak); });
        b.stage("training, 1.5B, 32k tokens", 60, [&] { training(b, gpu, peak); });
        b.stage("reinforcement, 1.5B", 40, [&] { reinforcement(b, gpu); });
        if (!b.peers.empty())
            b.stage("peers", 150, [&] {
                FILE* pipe = popen(b.peers.c_str(), "r");
                if (!pipe) fail("cannot run " + b.peers, "is it there?");
                char line[400], name[200], unit[100];
                double value;
                while (std::fgets(line, sizeof line, pipe)) {
                    std::printf("   %s", line);
                    if (std::sscanf(line, "%199s %lf %99s", name, &value, unit) == 3)
                        b.put({{"stage", "peers"}, {"name", name}, {"value", value}, {"unit", unit}});
                }
                pclose(pipe);
            });
        std::printf("written: %s (%.0f s)\n", b.out.c_str(), b.clock.seconds());
        return 0;
    });
}
