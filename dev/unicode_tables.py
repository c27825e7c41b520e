#!/usr/bin/env python3
"""Writes swarr/unicode_tables.h from the ranges in ../shared/tokenizer/unicode.

    python3 dev/unicode_tables.py [FOLDER] > swarr/unicode_tables.h

The ranges were read out of the reference engine code point by code point: classes of Unicode 16.0, composition
of Unicode 9.0. Numbers are written in base 32 with a continuation bit, one character a digit, least significant
first; code points as distances from the one before. That makes 14 KB of what would be 60 KB of hexadecimal.
"""
import sys
import textwrap

folder = sys.argv[1] if len(sys.argv) > 1 else "../shared/tokenizer/unicode"


def rows(name):
    with open(f"{folder}/{name}.txt") as lines:
        return [line.split() for line in lines if line.strip()]


def number(n):
    out = ""
    while True:
        out += chr(35 + (n & 31) + (32 if n > 31 else 0))
        n >>= 5
        if not n:
            return out


def runs(name):
    """gap to the end of the last run, length, for each run."""
    out, last = "", 0
    for first, end in ((int(a, 16), int(b, 16) + 1) for a, b in rows(name)):
        out += number(first - last) + number(end - first)
        last = end
    return out


def classes():
    out, last = "", 0
    for first, end, ccc in ((int(a, 16), int(b, 16) + 1, int(c)) for a, b, c in rows("nfc_ccc")):
        out += number(first - last) + number(end - first) + number(ccc)
        last = end
    return out


def decompositions():
    """gap, then 0 and the only code point, 1 and two that compose again, or 2 and two that do not."""
    composed = {(int(a, 16), int(b, 16)): int(c, 16) for a, b, c in rows("nfc_comp")}
    out, last, used = "", 0, 0
    for code, *parts in ([int(x, 16) for x in row] for row in rows("nfc_decomp")):
        kind = 0 if len(parts) == 1 else 1 if composed.get(tuple(parts)) == code else 2
        used += kind == 1
        # The first part is often near the code point itself, the second one a mark near U+0300.
        out += number(code - last) + number(kind) + "".join(map(number, parts))
        last = code
    assert used == len(composed), "a composite that does not decompose to its pair"
    return out


def literal(name, text):
    assert ')"' not in text
    lines = textwrap.wrap(text, 100, break_on_hyphens=False)
    assert "".join(lines) == text
    return f"inline constexpr char {name}[] =\n" + "\n".join(f'    R"({line})"' for line in lines) + ";\n"


print("""// unicode_tables.h: character classes and composition data; written by dev/unicode_tables.py, do not edit.
//
// Facts about Unicode 16.0 (letters, numbers) and 9.0 (composition) as the reference engine has them; the
// encoding is described in that script and read by unicode.h.
#pragma once

// clang-format off""")
print(literal("unicode_letters", runs("letters_L")))
print(literal("unicode_numbers", runs("numbers_N")))
print(literal("unicode_spaces", runs("whitespace_s")))
print(literal("unicode_combining_classes", classes()))
print(literal("unicode_decompositions", decompositions()).rstrip())
print("// clang-format on")
