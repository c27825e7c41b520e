// memory_plan.h: what a run will take, by category, against what the device has free, before anything is
// allocated. What cannot fit is refused with the settings that would.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "device.h"

using MemoryPlan = std::vector<std::pair<std::string, double>>;  // category, bytes
inline double total_bytes(const MemoryPlan& plan) {
    double total = 0;
    for (const auto& [name, bytes] : plan) total += bytes;
    return total;
}

// An option that memory depends on: its value, and the value that takes the least.
struct MemoryKnob {
    std::string option;
    int64_t now, least;
};

// `plan` gives the plan for values of the knobs, in their order. Prints it for the values of now.
// Errors: it does not fit; the hint then names, knob by knob, the value nearest to now with which it would.
inline void check_memory(double free, const std::vector<MemoryKnob>& knobs,
                         const std::function<MemoryPlan(const std::vector<int64_t>&)>& plan) {
    std::vector<int64_t> values;
    for (const MemoryKnob& k : knobs) values.push_back(k.now);
    const MemoryPlan now = plan(values);
    std::string text;
    for (const auto& [name, bytes] : now) text += (text.empty() ? "" : ", ") + name + " " + bytes_text(bytes);
    const std::string total = bytes_text(total_bytes(now));
    std::printf("memory: %s; %s in all, %s free\n", text.c_str(), total.c_str(), bytes_text(free).c_str());
    if (total_bytes(now) <= free) return;

    std::string hint;
    for (size_t k = 0; k < knobs.size(); k++) {
        auto fits = [&](int64_t value) {
            std::vector<int64_t> with = values;
            with[k] = value;
            return total_bytes(plan(with)) <= free;
        };
        int64_t bad = knobs[k].now, good = knobs[k].least;
        if (bad == good || !fits(good)) continue;
        while (std::abs(bad - good) > 1) {
            const int64_t middle = good + (bad - good) / 2;
            (fits(middle) ? good : bad) = middle;
        }
        hint += (hint.empty() ? "" : ", or ") + knobs[k].option + " " + std::to_string(good);
    }
    if (!hint.empty()) {
        hint = "it would fit with " + hint;
    } else {
        for (size_t k = 0; k < knobs.size(); k++) values[k] = knobs[k].least;
        const double least = total_bytes(plan(values));
        hint = least <= free ? "several settings have to change together: " : "even the least settings (";
        for (size_t k = 0; k < knobs.size(); k++)
            hint += (k ? ", " : "") + knobs[k].option + " " + std::to_string(knobs[k].least);
        hint += least <= free ? " would fit" : ") need " + bytes_text(least) + ": use a smaller model";
    }
    fail("this needs " + total + " of memory, " + bytes_text(free) + " are free", hint);
}
