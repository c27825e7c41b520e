// The model against an independent implementation (dev/oracle/make_golden.py: naive float64, confirmed by
// transformers): logits, loss and every parameter's gradient of tiny Qwen2, Qwen3 and Llama models.
#include "check.h"
#include "scratch.h"
#include "trainer.cuh"

namespace {

template <class Real>
void compare(const std::string& folder, double tolerance) {
    INFO(folder);
    ModelConfig c = read_config(folder);
    CpuDevice<Real> dev;
    Model<CpuDevice<Real>> m(dev, c);
    m.load(folder);
    SafetensorsReader golden = SafetensorsReader::open(folder + "/golden.safetensors");
    auto array = [&](const std::string& name) {
        const TensorInfo* t = golden.find(name);
        REQUIRE(t);
        std::vector<float> out(size_t(t->count()));
        golden.read(*t, out.data());
        return out;
    };

    std::vector<Sequence> documents;
    double worst = 0;
    for (int d = 0; golden.find(format("doc%d.ids", d)); d++) {
        Sequence s;
        for (float id : array(format("doc%d.ids", d))) s.token.push_back(int(id));
        for (float target : array(format("doc%d.targets", d)))
            s.target.push_back(target < 0 ? -1 : int(target));
        documents.push_back(s);

        Batch batch;
        batch.add(s.token.data(), int(s.token.size()));
        m.forward(batch);
        std::vector<Real> logits(s.token.size() * size_t(c.vocab));
        head_logits(dev, logits.data(), m.hidden(), m.head(), batch.tokens(), c.hidden, c.vocab);
        std::vector<float> expected = array(format("doc%d.logits", d));
        REQUIRE(expected.size() == logits.size());
        for (size_t i = 0; i < logits.size(); i++)
            worst = std::max(worst, std::fabs(double(logits[i]) - double(expected[i])));
    }
    REQUIRE(documents.size() > 1);
    CHECK(worst < tolerance);

    // all documents packed into one pass
    Trainer<CpuDevice<Real>> trainer(m, TrainOptions{}, 256, 0);
    double loss = trainer.supervised(documents, true);
    CHECK(loss == Approx(double(array("loss")[0])).epsilon(tolerance));
    for (const Parameter& p : m.layout.parameters) {
        std::vector<float> expected = array("grad." + p.name);
        double gap = 0, scale = 1e-3;
        for (size_t i = 0; i < p.size; i++) {
            gap = std::max(gap, std::fabs(double(m.gradients()[p.offset + i]) - double(expected[i])));
            scale = std::max(scale, std::fabs(double(expected[i])));
        }
        INFO(p.name << ": gap " << gap << " of " << scale);
        CHECK(gap < tolerance * scale);
    }
}

}  // namespace

TEST_CASE("golden: logits, loss and gradients equal an independent implementation", "[golden]") {
    for (const char* name :
         {"qwen2-sliding-tied", "qwen2-mixed-untied", "qwen3-sliding-tied", "llama-full-untied"}) {
        // Rotary angles are rounded to float as in transformers, the golden ones are not: hence not 1e-7 in
        // double.
        compare<double>(std::string("test/golden/") + name, 4e-6);
        compare<float>(std::string("test/golden/") + name, 1e-5);
    }
}

TEST_CASE("golden: real trained models, every stored logit and the long text", "[golden]") {
    for (const char* name : {"stories260K", "stories260K-qwen-bf16"}) {
        std::string folder = shared_path(std::string("models/") + name);
        if (folder.empty()) continue;
        ModelConfig c = read_config(folder);
        Cpu dev;
        Model<Cpu> m(dev, c);
        m.load(folder);
        Json golden = read_json(folder + "/golden.json");
        auto logits_of = [&](const std::vector<int>& ids) {
            Batch batch;
            batch.add(ids.data(), int(ids.size()));
            m.forward(batch);
            std::vector<float> logits(ids.size() * size_t(c.vocab));
            head_logits(dev, logits.data(), m.hidden(), m.head(), int(ids.size()), c.hidden, c.vocab);
            return logits;
        };
        double worst = 0;
        int compared = 0;
        for (const Json& item : golden["cases"]) {
            std::vector<float> logits = logits_of(item["ids"].get<std::vector<int>>());
            Json rows = item.contains("logits_all") ? item["logits_all"] : Json::array({item["logits_last"]});
            size_t at = logits.size() - rows.size() * size_t(c.vocab);
            for (const Json& row : rows)
                for (double expected : row)
                    worst = std::max(worst, std::fabs(double(logits[at++]) - expected)), compared++;
        }
        CHECK(compared > 9 * c.vocab);
        CHECK(worst < 1e-4);

        std::vector<int> ids = golden["long"]["ids"].get<std::vector<int>>();
        Sequence s;
        s.token.assign(ids.begin(), ids.end() - 1);
        s.target.assign(ids.begin() + 1, ids.end());
        Trainer<Cpu> trainer(m, TrainOptions{}, 1024, 2);
        double mean = golden["long"]["mean_nll"];
        CHECK(trainer.supervised({s}, false) == Approx(mean).epsilon(1e-5));
    }
}
