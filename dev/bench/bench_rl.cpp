// bench_rl: rollouts of the miniature against the number of slots, and where the time of an RL step goes.
// Targets: 64 slots at least 25 times one slot's tokens/s; a step five times as fast as a PyTorch prototype's
// 1.7 s (16 prompts x 8 answers, 2 updates, one busy core).   build/bench/bench_rl [seconds per measurement]
#include <ctime>

#include "rollout.cuh"

namespace {

double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("bench_rl", [&] {
        const double budget = argc > 1 ? std::atof(argv[1]) : 1;
        omp_set_num_threads(1);
        ModelOptions options;
        options.window = 16;
        const ModelSource source("data/ledger/base", options);
        Cpu device;
        Model<Cpu> model(device, source.config);
        model.load(source.folder);
        ProblemKeys keys;
        keys.format = AnswerFormat::ledger;
        const std::vector<EncodedProblem> problems =
            encode_problems({"data/ledger/rl.jsonl"}, source, keys, "", 0);
        RolloutOptions o;
        o.max_new_tokens = 80;

        std::printf("rollouts, window 16, process time of one thread\n%6s %12s %8s\n", "slots", "tokens/s",
                    "ratio");
        double one = 0;
        for (int slots = 1; slots <= 128; slots *= 2) {
            o.slots = slots;
            Order order(problems.size(), 1);
            int64_t cursor = 0;
            double tokens = 0;
            const double start = cpu_seconds();
            while (cpu_seconds() - start < budget)
                tokens += rollout_step(model, o, source, problems, order, cursor).statistics.tokens;
            const double speed = tokens / (cpu_seconds() - start);
            if (slots == 1) one = speed;
            std::printf("%6d %12.0f %8.1f\n", slots, speed, speed / one);
        }

        TrainOptions train;
        train.lr = 3e-4, train.schedule = "constant", train.weight_decay = 0;
        Trainer<Cpu> trainer(model, train, 8192, 0);
        Order order(problems.size(), 1);
        int64_t cursor = 0, steps = 0;
        double rollout = 0, marking = 0, gradient = 0, update = 0;
        while (rollout + gradient + update < 3 * budget) {
            double t0 = cpu_seconds();
            StepRollouts step = rollout_step(model, o, source, problems, order, cursor);
            for (Trajectory& t : step.trajectories) t.old_logp = t.rollout_logp;
            double t1 = cpu_seconds();
            rollout += t1 - t0 - step.statistics.seconds_reward, marking += step.statistics.seconds_reward;
            for (size_t first = 0; first < step.trajectories.size(); first += 64) {
                std::vector<Trajectory> part(step.trajectories.begin() + int64_t(first),
                                             step.trajectories.begin() + int64_t(first) + 64);
                CispoStatistics stats;
                t0 = cpu_seconds();
                const double loss = cispo_gradient(trainer, part, CispoOptions{}, stats);
                t1 = cpu_seconds();
                if (stats.tokens > 0) trainer.update(loss);
                gradient += t1 - t0, update += cpu_seconds() - t1;
            }
            steps++;
        }
        const double all = rollout + marking + gradient + update;
        std::printf("\nan RL step, 128 slots: %.1f ms of one thread, %.0f times the prototype's 1.7 s\n",
                    1000 * all / double(steps), 1.7 * double(steps) / all);
        std::printf("rollout %.0f%%, marking %.1f%%, gradient %.0f%%, update %.0f%%\n", 100 * rollout / all,
                    100 * marking / all, 100 * gradient / all, 100 * update / all);
        return 0;
    });
}
