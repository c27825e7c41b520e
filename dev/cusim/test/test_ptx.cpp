// Parser, decoder and register packing: what they accept, what they refuse, and that values survive.
#include "harness.h"

using namespace cusim;

namespace {

std::string error_of(const std::string& body) {
    try {
        PtxRun run(body);
    } catch (const PtxError& e) {
        return e.what();
    }
    return "";
}

}  // namespace

TEST_CASE("lexer: names, numbers and strings") {
    Lexer in(
        "@!%p1 ld.global.L1::no_allocate.v4.f32 {%f1, _}, [%rd1+-16]; // end\n0x1F /* a\n b */ \"text\" "
        "$L__BB0_1:");
    std::vector<std::string> words;
    while (in.peek().kind != Token::End) words.emplace_back(in.next().text);
    CHECK(words == std::vector<std::string>{"@", "!",    "%p1",  "ld.global.L1::no_allocate.v4.f32",
                                            "{", "%f1",  ",",    "_",
                                            "}", ",",    "[",    "%rd1",
                                            "+", "-",    "16",   "]",
                                            ";", "0x1F", "text", "$L__BB0_1",
                                            ":"});
}

TEST_CASE("module: variables with initial values, kernels, declarations") {
    auto m = parse_module(R"(.version 9.0
.target sm_80, debug
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.const .align 4 .b8 c[16];
.global .align 4 .u32 n = 3;
.global .align 8 .u64 p[2] = {generic(n), 0x10};
.global .align 4 .f32 f[3] = {0f3F800000, 1.5, 2};
.global .align 1 .b8 text[3] = {97, 98};
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .align 8 .b8 big[24], .param .u32 x) .maxntid 256, 1, 1 { ret; }
)");
    CHECK(m->version_major == 9);
    CHECK(m->target == 80);
    CHECK(m->variables.find("c")->second.bytes() == 16);
    CHECK(m->variables.find("p")->second.init[0].symbol == "n");
    const auto& f = m->variables.find("f")->second.init;
    CHECK((f[0].value == 0x3f800000 && f[1].value == 0x3fc00000 && f[2].value == 0x40000000));
    CHECK(m->variables.find("dynamic")->second.count == 0);
    CHECK(m->functions.find("k")->second.params.size() == 2);
}

TEST_CASE("malformed PTX is an error, never a crash") {
    for (const char* text :
         {".version", ".version 9.0 .target", ".entry", ".entry k(", ".entry k() {", ".global .u32",
          ".global .u32 x[9999999999999];", ".global .u32 x = {1, 2};", ".entry k() { { } } }", "/* no end",
          "\"no end", ".func f(", ".file", ".banana", "}", "{"})
        CHECK_THROWS_AS(parse_module(text), PtxError);
    for (const char* body :
         {"add.s32 %r1, %r2, %r3;", ".reg .b32 %r<3>; add.s32 %r1, %r2;", ".reg .b32 %r<3>; add.s32 %r1 %r2;",
          ".reg .b32 %r<3>; add.f16x9 %r1, %r2, %r2;", "bra NOWHERE;",
          ".reg .b32 %r<2>; .reg .b64 %rd<2>; add.s32 %r1, %rd1, 1;",
          ".reg .b32 %r<2>; mov.u32 %r1, %nonsense;", "st.global.u32 [x], 1;",
          ".reg .b32 %r<2>; ld.global.u32 %r1, [%r9];", "call f, ();",
          ".reg .pred %p<2>; @%p1 add.s32 1, 2, 3;",
          ".reg .b32 %r<2>; mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1}, {%r1}, {%r1}, {%r1};"})
        CHECK(error_of(body) != "");
}

TEST_CASE("an unknown form is named with the file to extend") {
    std::string e = error_of(".reg .b32 %r<2>;\nfrobnicate.b32 %r1, 1;");
    CHECK(contains(e, "frobnicate.b32"));
    CHECK(contains(e, "dev/cusim/exec/table.cpp"));
    CHECK(contains(error_of(".reg .b32 %r<2>;\nadd.quickly.s32 %r1, %r1, 1;"), "unknown modifier .quickly"));
}

TEST_CASE("scopes: inner registers and labels hide outer ones") {
    PtxRun run(R"(
.reg .b32 %r<3>; .reg .pred p;
mov.u32 %r1, 5;
{ .reg .b32 %r1; .reg .pred p; mov.u32 %r1, 7; setp.eq.s32 p, %r1, 7; @p bra DONE; mov.u32 %r1, 9; DONE: st.global.u32 [%out], %r1; }
{ .reg .b32 %r1; mov.u32 %r1, 8; bra DONE; mov.u32 %r1, 9; DONE: st.global.u32 [%out+4], %r1; }
st.global.u32 [%out+8], %r1;)",
               1);
    CHECK(run.out[0] == 7);
    CHECK(run.out[1] == 8);
    CHECK(run.out[2] == 5);
}

TEST_CASE("packing: a value set in a branch inside a loop lives across the back edge") {
    // x is set in the first iteration only; t1..t3 would take its column if intervals were linear.
    PtxRun run(R"(
.reg .b32 %i, %x, %t<4>, %sum; .reg .pred %p<3>;
mov.u32 %i, 0; mov.u32 %sum, 0;
LOOP:
setp.ne.s32 %p1, %i, 0;
@%p1 bra SKIP;
mov.u32 %x, 1000;
SKIP:
add.s32 %sum, %sum, %x;
mov.u32 %t1, 1; add.s32 %t2, %t1, %i; add.s32 %t3, %t2, 1; add.s32 %sum, %sum, %t3;
add.s32 %i, %i, 1;
setp.lt.s32 %p2, %i, 4;
@%p2 bra LOOP;
st.global.u32 [%out], %sum;)",
               1);
    CHECK(run.out[0] == 4000 + 2 + 3 + 4 + 5);
}

TEST_CASE("packing shares columns") {
    std::string body = ".reg .b32 %r<401>;\nmov.u32 %r0, 1;\n";
    for (int i = 0; i < 400; i++)
        body += "add.s32 %r" + std::to_string(i + 1) + ", %r" + std::to_string(i) + ", 1;\n";
    PtxRun run(body + "st.global.u32 [%out], %r400;", 1);
    CHECK(run.out[0] == 401);
    CHECK(run.kernel().register_bytes < 8 * 128);
}

TEST_CASE("a guarded write keeps the other lanes' values") {
    PtxRun run(R"(
.reg .b32 %r<4>; .reg .b64 %a; .reg .pred %p;
mov.u32 %r1, %tid.x;
mov.u32 %r2, 100;
setp.lt.u32 %p, %r1, 10;
@%p mov.u32 %r2, %r1;
mad.wide.u32 %a, %r1, 4, %out;
st.global.u32 [%a], %r2;)");
    CHECK(run.out[9] == 9);
    CHECK(run.out[10] == 100);
}

TEST_CASE("diverged lanes meet again") {
    // Collatz lengths: every lane leaves the loop at another time; ballots before and after see all lanes.
    PtxRun run(R"(
.reg .b32 %n, %i, %t, %b; .reg .b64 %a; .reg .pred %p, %q;
mov.u32 %n, %tid.x; add.s32 %n, %n, 1; mov.u32 %i, 0;
LOOP:
setp.eq.s32 %p, %n, 1; @%p bra DONE;
and.b32 %t, %n, 1; setp.eq.s32 %q, %t, 0;
@%q bra EVEN;
mad.lo.s32 %n, %n, 3, 1; bra NEXT;
EVEN: shr.u32 %n, %n, 1;
NEXT: add.s32 %i, %i, 1; bra LOOP;
DONE:
setp.ge.s32 %q, %i, 10;
vote.sync.ballot.b32 %b, %q, 0xffffffff;
mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, %out;
st.global.u32 [%a], %i; st.global.u32 [%a+128], %b;)");
    u32 expected_ballot = 0;
    std::vector<u32> steps(32);
    for (u32 l = 0; l < 32; l++) {
        for (u64 n = l + 1; n != 1; n = n % 2 ? 3 * n + 1 : n / 2) steps[l]++;
        expected_ballot |= u32(steps[l] >= 10) << l;
    }
    for (u32 l = 0; l < 32; l++) {
        CHECK(run.out[l] == steps[l]);
        CHECK(run.out[32 + l] == expected_ballot);
    }
}

TEST_CASE("brx.idx jumps by index") {
    PtxRun run(R"(
.reg .b32 %r<4>; .reg .b64 %a;
mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3;
T: .branchtargets L0, L1, L2, L1;
brx.idx %r2, T;
L0: mov.u32 %r3, 10; bra E;
L1: mov.u32 %r3, 11; bra E;
L2: mov.u32 %r3, 12;
E: mad.wide.u32 %a, %r1, 4, %out; st.global.u32 [%a], %r3;)");
    for (u32 l = 0; l < 32; l++) CHECK(run.out[l] == (l % 4 == 0 ? 10u : l % 4 == 2 ? 12u : 11u));
}
