"""What a command may reach: ``open``, ``off``, or ``allow:`` and a list. Pure: no sockets here."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from substrate.errors import UsageError

Address = IPv4Address | IPv6Address
_HINT = "--net open, --net off, or --net allow:example.com:443,*.example.org:*,10.0.0.5:5432"
#: RFC 6761: this name is the loopback address, whatever a resolver answers.
_LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")
_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_NAT64 = ip_network("64:ff9b::/96")


class Rule(NamedTuple):
    """One entry of an ``allow:`` list."""

    #: A name in lower case; ``*.example.com`` is every name below it, but not itself. Empty for
    #: an address.
    name: str
    network: IPv4Network | IPv6Network | None
    #: None: every port.
    port: int | None

    def names(self, name: str) -> bool:
        if not self.name:
            return False
        if self.name.startswith("*."):
            return name.endswith(self.name[1:]) and len(name) > len(self.name) - 1
        return name == self.name

    def holds(self, address: Address) -> bool:
        if self.name in _LOOPBACK_NAMES:
            return any(address in network for network in _LOOPBACK)
        return self.network is not None and address in self.network

    def at(self, port: int) -> bool:
        return self.port is None or self.port == port


class Policy(NamedTuple):
    """What `--net` asked for."""

    #: ``open``, ``off`` or ``allow``.
    mode: str
    rules: tuple[Rule, ...] = ()
    #: As it was requested: for spans.
    text: str = "open"

    @property
    def encloses(self) -> bool:
        """Whether the command gets its own network namespace."""
        return self.mode != "open"

    def may_name(self, name: str) -> bool:
        """Whether some port of `name` is allowed, and so the name may be resolved."""
        return any(rule.names(name) for rule in self.rules)

    def may_reach_name(self, name: str, port: int) -> bool:
        return any(rule.names(name) and rule.at(port) for rule in self.rules)

    def may_reach_address(self, address: Address, port: int) -> bool:
        """Whether this exact address is on the list."""
        plain = unmapped(address)
        return any(rule.holds(plain) and rule.at(port) for rule in self.rules)

    def may_dial(self, address: Address, port: int) -> bool:
        """Whether an allowed name may resolve to this address at this port.

        The owner of a name controls its addresses. An address of this machine or of a private
        network is refused unless it is on the list itself.
        """
        return is_public(address) or self.may_reach_address(address, port)

    def may_lead_to(self, address: Address) -> bool:
        """Whether an allowed name may resolve to this address at any port."""
        plain = unmapped(address)
        return is_public(plain) or any(rule.holds(plain) for rule in self.rules)

    def ports_of(self, name: str) -> tuple[int, ...]:
        """The ports that the rules for `name` give by number."""
        ports = {rule.port for rule in self.rules if rule.names(name) and rule.port is not None}
        return tuple(sorted(ports))


def parse(text: str) -> Policy:
    """`text` as given to ``--net``; a `UsageError` names the entry that is wrong."""
    word = text.strip()
    if word in ("open", "off"):
        return Policy(word, (), word)
    kind, colon, entries = word.partition(":")
    if kind != "allow" or not colon:
        raise UsageError(f"--net does not know {text!r}", hint=_HINT)
    rules = tuple(_rule(entry.strip()) for entry in entries.split(",") if entry.strip())
    if not rules:
        raise UsageError("--net allow: lists nothing", hint=_HINT)
    return Policy("allow", rules, word)


def _rule(entry: str) -> Rule:
    host, colon, port_text = entry.rpartition(":")
    if host.count(":") and not host.startswith("["):
        raise UsageError(
            f"--net allow: {entry!r}: write an IPv6 address in brackets", hint="[2001:db8::1]:443"
        )
    if not colon or not host:
        raise UsageError(f"--net allow: {entry!r} is not host:port", hint=_HINT)
    port = _port(entry, port_text)
    bare = host.strip("[]").rstrip(".").lower()
    try:
        return Rule("", ip_network(bare, strict=False), port)
    except ValueError:
        return Rule(_name(entry, bare), None, port)


def _port(entry: str, text: str) -> int | None:
    if text == "*":
        return None
    if text.isascii() and text.isdigit() and 0 < int(text) < 65536:
        return int(text)
    raise UsageError(f"--net allow: {entry!r}: {text!r} is not a port", hint=_HINT)


def _name(entry: str, bare: str) -> str:
    try:
        name = bare if bare.isascii() else bare.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    plain = name.removeprefix("*.")
    if plain and "*" not in plain and all(0 < len(label) < 64 for label in plain.split(".")):
        return name
    raise UsageError(f"--net allow: {entry!r}: {bare!r} is not a host name", hint=_HINT)


def parse_address(text: str) -> Address | None:
    """An address without its brackets or its zone; None for a name."""
    try:
        return unmapped(ip_address(text.strip("[]").partition("%")[0]))
    except ValueError:
        return None


def unmapped(address: Address) -> Address:
    """``::ffff:10.0.0.1`` is 10.0.0.1, and so is NAT64's spelling: rules use the plain one."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    """Neither this machine, nor its link, nor a private or a reserved range."""
    plain = unmapped(address)
    return plain.is_global and not plain.is_multicast


def is_loopback(address: Address) -> bool:
    return unmapped(address).is_loopback
