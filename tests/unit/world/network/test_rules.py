"""What ``--net`` takes, and what it lets through."""

from __future__ import annotations

import pytest

from substrate.errors import UsageError
from substrate.world.network.rules import is_public, parse, parse_address


@pytest.mark.parametrize(
    ("text", "name", "port", "allowed"),
    [
        ("allow:example.com:443", "example.com", 443, True),
        ("allow:example.com:443", "example.com", 80, False),
        ("allow:example.com:443", "www.example.com", 443, False),
        ("allow:EXAMPLE.com.:443", "example.com", 443, True),
        ("allow:*.example.com:*", "a.b.example.com", 1, True),
        ("allow:*.example.com:*", "example.com", 443, False),
        ("allow:*.example.com:*", "badexample.com", 443, False),
        ("allow:a.test:1, b.test:2", "b.test", 2, True),
        ("allow:bücher.test:443", "xn--bcher-kva.test", 443, True),
        ("off", "example.com", 443, False),
    ],
)
def test_names(text: str, name: str, port: int, allowed: bool) -> None:
    assert parse(text).may_reach_name(name, port) is allowed


@pytest.mark.parametrize(
    ("text", "address", "port", "allowed"),
    [
        ("allow:10.0.0.5:5432", "10.0.0.5", 5432, True),
        ("allow:10.0.0.5:5432", "10.0.0.6", 5432, False),
        ("allow:10.0.0.0/8:*", "10.9.9.9", 1, True),
        ("allow:[2001:db8::1]:443", "2001:db8::1", 443, True),
        ("allow:10.0.0.5:443", "::ffff:10.0.0.5", 443, True),
        ("allow:localhost:8000", "127.0.0.1", 8000, True),
        ("allow:localhost:8000", "::1", 8000, True),
        ("allow:localhost:8000", "10.0.0.1", 8000, False),
        ("allow:example.com:443", "93.184.216.34", 443, False),
    ],
)
def test_addresses(text: str, address: str, port: int, allowed: bool) -> None:
    plain = parse_address(address)
    assert plain is not None
    assert parse(text).may_reach_address(plain, port) is allowed


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.1.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1"),
        *("::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::"),
    ],
)
def test_a_name_may_not_lead_into_a_private_range_in_any_spelling(address: str) -> None:
    plain = parse_address(address)
    assert plain is not None
    assert not is_public(plain)
    assert not parse("allow:evil.test:*").may_dial(plain, 443)


def test_a_public_address_may_be_dialled_for_a_name_but_not_by_itself() -> None:
    plain = parse_address("93.184.216.34")
    assert plain is not None
    policy = parse("allow:example.com:443")
    assert policy.may_dial(plain, 443)
    assert not policy.may_reach_address(plain, 443)


@pytest.mark.parametrize(
    "text",
    [
        *("", "closed", "allow", "allow:", "allow:,", "allow:example.com", "allow:example.com:"),
        *("allow:example.com:0", "allow:example.com:65536", "allow:example.com:x"),
        *("allow::443", "allow:2001:db8::1:443", "allow:a*.test:443", "allow:a..b:1", "open:x"),
    ],
)
def test_what_is_not_understood_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert "allow:" in caught.value.hint or "[" in caught.value.hint
