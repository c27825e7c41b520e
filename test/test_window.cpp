// The window rule itself, and that skipped tiles hold no visible key.
#include "catch.h"
#include "rng.h"
#include "window.h"

TEST_CASE("window: W keys, the query included") {
    for (int W : {1, 2, 3, 7, 8, 9}) {
        for (int q = 0; q < 30; q++) {
            int seen = 0;
            for (int k = 0; k < 30; k++) seen += visible({W, 0}, q, k);
            CHECK(seen == (q + 1 < W ? q + 1 : W));
            CHECK(visible({W, 0}, q, q));
            CHECK(!visible({W, 0}, q, q + 1));
            CHECK((q - W < 0 || !visible({W, 0}, q, q - W)));
            CHECK((q - W + 1 < 0 || visible({W, 0}, q, q - W + 1)));
            CHECK(first_key({W, 0}, q) == (q - W + 1 < 0 ? 0 : q - W + 1));
        }
    }
    CHECK(visible({0, 0}, 1000000, 0));
    CHECK(visible({4, 2}, 100, 1));
    CHECK(!visible({4, 2}, 100, 2));
    CHECK(!visible({4, 200}, 100, 101));
}

TEST_CASE("window: tiles and ranges cover everything visible, and nothing far outside") {
    for (int W : {0, 1, 2, 7, 8, 9, 16, 40})
        for (int S : {0, 3, 8, 9})
            for (int size : {1, 4, 8})
                for (int q0 = 0; q0 < 48; q0 += 9)
                    for (int q1 = q0; q1 < q0 + 9; q1 += 4) {
                        Window w{W, S};
                        KeyTiles t = key_tiles(w, q0, q1, size);
                        REQUIRE(t.sink_end <= t.begin);
                        for (int k = 0; k < 64; k++) {
                            bool seen = false, everywhere = true;
                            for (int q = q0; q <= q1; q++) {
                                seen |= visible(w, q, k);
                                everywhere &= visible(w, q, k);
                            }
                            int tile = k / size;
                            bool walked = tile < t.sink_end || (tile >= t.begin && tile < t.end);
                            INFO("W " << W << " S " << S << " size " << size << " q " << q0 << ".." << q1
                                      << " k " << k);
                            REQUIRE((!seen || walked));
                            if (all_visible(w, q0, q1, k, k)) REQUIRE(everywhere);
                            QueryRange r = query_range(w, k, k, 64);
                            for (int q = 0; q < 64; q++)
                                if (visible(w, q, k)) REQUIRE((q >= r.first && q < r.end));
                        }
                        if (W != 0 && S == 0) REQUIRE((t.end - t.begin) * size <= W + (q1 - q0) + 2 * size);
                    }
}

TEST_CASE("philox: known answers of the Random123 distribution") {
    Philox zero = philox(0, 0, 0, 0, 0);
    CHECK(zero.v[0] == 0x6627e8d5u);
    CHECK(zero.v[1] == 0xe169c58du);
    CHECK(zero.v[2] == 0xbc57ac4cu);
    CHECK(zero.v[3] == 0x9b00dbd8u);
    Philox ones = philox(~0u, ~0u, ~0u, ~0u, ~uint64_t(0));
    CHECK(ones.v[0] == 0x408f276du);
    CHECK(ones.v[1] == 0x41c83b0eu);
    CHECK(ones.v[2] == 0xa20bc7c6u);
    CHECK(ones.v[3] == 0x6d5451fdu);
    Philox pi = philox(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0x299f31d0a4093822ull);
    CHECK(pi.v[0] == 0xd16cfe09u);
    CHECK(pi.v[1] == 0x94fdccebu);
    CHECK(pi.v[2] == 0x5001e420u);
    CHECK(pi.v[3] == 0x24126ea1u);
}

TEST_CASE("rng: uniforms in range, integers unbiased, shuffles are permutations") {
    Rng rng(7, Stream::test);
    int count[5] = {};
    for (int i = 0; i < 50000; i++) count[rng.below(5)]++;
    for (int c : count) CHECK(std::abs(c - 10000) < 400);
    for (int i = 0; i < 1000; i++) {
        float u = rng.uniform();
        REQUIRE((u >= 0 && u < 1));
    }
    std::vector<int> order(100), seen(100);
    for (int i = 0; i < 100; i++) order[size_t(i)] = i;
    rng.shuffle(order);
    for (int i : order) seen[size_t(i)]++;
    CHECK(seen == std::vector<int>(100, 1));
    CHECK(order[0] + order[1] + order[2] != 0 + 1 + 2);
}
