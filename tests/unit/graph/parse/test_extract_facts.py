"""What is read out of a file, by language."""

from __future__ import annotations

import pytest

from substrate.graph.parse.blob_facts import Facts
from substrate.graph.parse.extract_facts import extract, extract_all
from substrate.graph.parse.languages import count_lines, detect, name_key

PYTHON = '''\
import os.path as p, sys
from . import x
from ..a.b import (c as d,
                   e)


@deco(1)
class A(Base, metaclass=M):
    """Doc."""

    def f(self, x: int) -> int:
        """Does f.

        More."""
        y = Foo()
        return self.g(y.z(1))
        # not part of f


LIMIT = 3
if x:
    def g(): ...
else:
    def g(): ...
'''
TYPESCRIPT = """\
import D, { a as b } from "./x";
import * as ns from "y";
export default class K extends L { private foo(x: Bar): void { this.bar(); new Z(); } }
export const f = (a: string) => g(a);
interface I { m(): void }
type T = string;
enum E { A }
"""
GO = """\
package main

import (
    "fmt"
    u "x/y"
)

// T is it.
type T struct { Base }

func (t *T) M(a int) error { fmt.Println(a); return t.N() }

const C = 1

func f() { x := &T{}; x.M(1); u.Z() }
"""
RUST = """\
use crate::a::{b, c as d, e::*};
mod foo;
pub struct S;
impl S { pub fn new() -> Self { helper(); S } }
fn helper() { let s = S::new(); s.go(); println!("x"); }
trait T: U { fn r(&self); }
const MAX: u8 = 3;
"""
JAVA = """\
package com.x;
import com.y.Foo;
import static com.z.B.c;
/** Doc. */
public class A extends B implements C {
    static final int K = 1;
    A() {}
    public void m(Foo x) { x.go(); n(); new Foo(); }
    private void n() {}
}
interface I { void q(); }
"""
C_SOURCE = """\
#include "foo.h"
#include <stdio.h>
#define MAX 3
struct s { int a; };
typedef struct { int b; } t;
/* Does f. */
static char *f(int a) { g(a); return 0; }
"""
CPP = """\
#include <vector>
namespace n { class K : public L { int m() { return o(); } }; }
template <class T> int K2<T>::p(Foo &x) { x.q(); return 1; }
"""
RUBY = """\
require_relative "a/b"
module M
  class K < L
    MAX = 3
    # Does m.
    def m(a)
      foo(a)
    end
    def self.s; end
  end
end
"""
JAVASCRIPT = """\
const { q, w: v } = require("./z");
function a() { return b(c.d()); }
class Q extends R { m() { super.m(); } }
const go = () => a();
module.exports = a;
"""

EXPECTED: dict[str, tuple[str, str, set[str], set[str]]] = {
    "Python": (
        ".py", PYTHON,
        {"class A", "method A.f", "constant LIMIT", "function g"},
        {"os.path", "sys", "", "a.b"},
    ),
    "TypeScript": (
        ".ts", TYPESCRIPT,
        {"class K", "method K.foo", "function f", "interface I", "method I.m", "type T", "enum E"},
        {"./x", "y"},
    ),
    "JavaScript": (
        ".js", JAVASCRIPT, {"function a", "class Q", "method Q.m", "function go"}, {"./z"},
    ),
    "Go": (".go", GO, {"struct T", "method T.M", "constant C", "function f"}, {"fmt", "x/y"}),
    "Rust": (
        ".rs", RUST,
        {"struct S", "method S.new", "function helper", "trait T", "method T.r", "constant MAX"},
        {"crate::a", "crate::a::e", "self::foo"},
    ),
    "Java": (
        ".java", JAVA,
        {"class A", "constant A.K", "constructor A.A", "method A.m", "method A.n", "interface I",
         "method I.q"},
        {"com.y", "com.z.B"},
    ),
    "C": (
        ".c", C_SOURCE, {"constant MAX", "struct s", "type t", "function f"}, {"foo.h", "stdio.h"},
    ),
    "C++": (".cpp", CPP, {"namespace n", "class n.K", "method n.K.m", "method K2.p"}, {"vector"}),
    "Ruby": (
        ".rb", RUBY,
        {"namespace M", "class M.K", "constant M.K.MAX", "method M.K.m", "method M.K.s"}, {"a/b"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("language", EXPECTED)
def test_symbols_and_imports_of_each_language(language: str) -> None:
    key, source, symbols, imports = EXPECTED[language]
    facts = extract(key, source.encode())
    assert (facts.language, facts.trouble) == (language, "")
    assert {f"{s.kind} {s.local}" for s in facts.symbols[1:]} == symbols
    assert {found.module for found in facts.imports} == imports


def test_many_that_are_read_together_say_what_each_says_alone() -> None:
    sources = [(key, source.encode()) for key, source, _, _ in EXPECTED.values()]
    items = [
        *sources,
        (".py", b"def bad(:\n    ((\n"),
        (".png", b"\0\1"),
        (".py", b"x = f(\n" * 20_000),  # deep, and larger than a group
        *[(".py", b"def f%d(): g%d()\nY = 1\n" % (n, n)) for n in range(40)],
        *sources,
    ]
    assert extract_all(items) == [extract(key, data) for key, data in items]


def by_local(facts: Facts, local: str) -> tuple[str, str, str, int, int]:
    at = next(i for i, symbol in enumerate(facts.symbols) if symbol.local == local)
    detail = facts.details[at]
    span = detail.span
    return detail.visibility, detail.signature, detail.docstring, span.start_line, span.end_line


def test_a_definition_says_what_it_is() -> None:
    facts = extract(".py", PYTHON.encode())
    signature = "def f(self, x: int) -> int"
    assert by_local(facts, "A.f") == ("public", signature, "Does f.", 11, 16)
    assert by_local(facts, "A")[1:3] == ("class A(Base, metaclass=M)", "Doc.")
    assert len({s.key for s in facts.symbols if s.local == "g"}) == 2
    c_facts = extract(".c", C_SOURCE.encode())
    assert by_local(c_facts, "f")[:3] == ("private", "static char *f(int a)", "Does f.")
    java = extract(".java", JAVA.encode())
    assert by_local(java, "A.n")[0] == "private"
    assert by_local(java, "A")[2] == "Doc."


def test_what_a_with_statement_opens_has_its_type_written_there() -> None:
    source = (
        b"def f():\n    with m.Store(1) as x, open(p) as y, Pair() as (a, b):\n        x.read()\n"
    )
    facts = extract(".py", source)
    assert [(variable, kind) for _, variable, kind in facts.types] == [("x", "m.Store")]


def test_a_comment_is_no_part_of_a_signature_and_names_no_parameter() -> None:
    source = """\
def f(a,  # first, g: by name
      b="#"):  # then (g )
    # (g is called)
    return g()
"""
    facts = extract(".py", source.encode())
    assert by_local(facts, "f")[1] == 'def f(a, b="#")'
    assert [(call.name, call.is_parameter) for call in facts.calls] == [("g", False)]


def hash_of(source: str, local: str) -> str:
    facts = extract(".py", source.encode())
    at = next(i for i, symbol in enumerate(facts.symbols) if symbol.local == local)
    return facts.details[at].hash


def test_a_class_does_not_change_with_its_methods() -> None:
    before = "class A:\n    x = 1\n    def f(self): return 1\n"
    after = before.replace("return 1", "return 2")
    assert hash_of(before, "A") == hash_of(after, "A")
    assert hash_of(before, "A.f") != hash_of(after, "A.f")
    assert hash_of(before, "A") != hash_of(before.replace("x = 1", "x = 2"), "A")
    assert hash_of(before, "A.f") == hash_of("\n\n" + before, "A.f")
    assert hash_of(before, "A.f") != hash_of(before.replace("    def", "    @d\n    def"), "A.f")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("# -*- coding: latin-1 -*-\ndef gr\xfc(): ...\n".encode("latin-1"), ["grü"]),
        (b"\xef\xbb\xbfdef bom(): ...\n", ["bom"]),
        (b"def a(): ...\rdef b(): ...\r", ["a", "b"]),
        (b"def a(): ...\r\ndef b(): ...\r\n", ["a", "b"]),
        ("def ﬁ(): ...\n".encode(), ["fi"]),
        (b"\xff\xfe def (((\n", []),
    ],
)
def test_odd_encodings_and_line_ends(source: bytes, names: list[str]) -> None:
    facts = extract(".py", source)
    found = [symbol.name for symbol in facts.symbols if symbol.kind == "function"]
    assert found == names
    if len(names) == 2:
        assert [d.span.start_line for d in facts.details[1:]] == [1, 2]


def test_a_file_that_does_not_parse_is_marked_and_keeps_what_can_be_read() -> None:
    facts = extract(".py", b"def good(): ...\n\n\ndef bad(:\n    ((\n")
    assert facts.trouble == "syntax errors"
    assert "good" in [symbol.name for symbol in facts.symbols]


@pytest.mark.parametrize(
    ("path", "data", "language"),
    [
        (b"a/Makefile", b"", "Makefile"),
        (b"x.PY", b"", "Python"),
        (b"run", b"#!/usr/bin/env -S python3 -u\n", "Python"),
        (b"run", b"#!/bin/bash\n", "Shell"),
        (b"run", b"#!/usr/bin/node\n", "JavaScript"),
        (b"a.h", b"int f(void);\n", "C"),
        (b"a.h", b"class K { public: int f(); };\n", "C++"),
        (b"a.html.erb", b"", "HTML+ERB"),
        (b"a.tsx", b"", "TSX"),
        (b"odd", b"# -*- mode: ruby -*-\n", "Ruby"),
        (b"noidea", b"words\n", ""),
        (b".py", b"", ""),
        (b"x.zig", b"", "Zig"),
    ],
)
def test_languages_by_name_extension_and_first_line(
    path: bytes, data: bytes, language: str
) -> None:
    assert detect(name_key(path), data) == language


@pytest.mark.parametrize(
    ("data", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"a\rb\r\nc\n", 3)]
)
def test_lines_are_counted_as_editors_do(data: bytes, lines: int) -> None:
    assert count_lines(data) == lines
