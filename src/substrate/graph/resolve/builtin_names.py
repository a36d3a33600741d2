"""Names that belong to languages, not to projects; fixed lists, independent of the runtime."""

from __future__ import annotations

_PYTHON = """
abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile
complex copyright credits delattr dict dir divmod enumerate eval exec exit filter float format
frozenset getattr globals hasattr hash help hex id input int isinstance issubclass iter len license
list locals map max memoryview min next object oct open ord pow print property quit range repr
reversed round set setattr slice sorted staticmethod str sum super tuple type vars zip __import__
ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError
BrokenPipeError BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError
ConnectionRefusedError ConnectionResetError DeprecationWarning EOFError EncodingWarning
EnvironmentError Exception ExceptionGroup FileExistsError FileNotFoundError FloatingPointError
FutureWarning GeneratorExit IOError ImportError ImportWarning IndentationError IndexError
InterruptedError IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError
ModuleNotFoundError NameError NotADirectoryError NotImplementedError OSError OverflowError
PendingDeprecationWarning PermissionError ProcessLookupError RecursionError ReferenceError
ResourceWarning RuntimeError RuntimeWarning StopAsyncIteration StopIteration SyntaxError
SyntaxWarning SystemError SystemExit TabError TimeoutError TypeError UnboundLocalError
UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError UnicodeWarning
UserWarning ValueError Warning ZeroDivisionError
"""
_JS = """
Array ArrayBuffer BigInt Boolean Date Error Function JSON Map Math Number Object Promise Proxy
RangeError RegExp Set String Symbol SyntaxError TypeError Uint8Array URL WeakMap WeakSet alert
clearInterval clearTimeout console decodeURIComponent encodeURIComponent fetch isFinite isNaN
parseFloat parseInt queueMicrotask require setInterval setTimeout structuredClone
"""
_GO = """
append bool byte cap clear close complex copy delete error float32 float64 imag int int16 int32
int64 int8 len make max min new panic print println real recover rune string uint uint16 uint32
uint64 uint8 uintptr
"""
_RUST = """
Box Err None Ok Option Result Some String Vec assert assert_eq assert_ne dbg debug_assert drop
eprintln eprint format matches panic print println todo unimplemented unreachable vec write writeln
"""
_C = """
abort assert atoi calloc exit fclose fopen fprintf free fread fwrite malloc memcmp memcpy memmove
memset printf puts qsort realloc sizeof snprintf sprintf sscanf strcat strchr strcmp strcpy strdup
strlen strncmp strncpy strstr strtol
"""
_RUBY = """
Array Float Integer String attr_accessor attr_reader attr_writer binding block_given? catch eval
exit extend fail format freeze gets include lambda loop p pp prepend print printf private
private_constant proc protected public puts raise rand sleep sprintf srand throw warn
"""

BUILTINS = {
    "python": frozenset(_PYTHON.split()),
    "js": frozenset(_JS.split()),
    "go": frozenset(_GO.split()),
    "rust": frozenset(_RUST.split()),
    "c": frozenset(_C.split()),
    "ruby": frozenset(_RUBY.split()),
    "java": frozenset[str](),
}

#: Methods of strings, lists, maps, files: a call of one says nothing about the project.
_COMMON = """
add append apply call clear clone close copy count create decode delete encode endswith entries
equals exists extend filter find first flush forEach format get getValue has hashCode index
indexOf init insert items iter join keys last len length list load log map match max min name
new next open parse path pop push put read readline recv reduce remove render replace reset
reverse run save search send set size slice sort splice split start startswith stop strip
substring test then toString trim type update upper lower value values wait write
"""
COMMON_METHODS = frozenset(_COMMON.split())
