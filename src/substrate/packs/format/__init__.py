"""Manifests and execution logs: canonical bytes, checked fields."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.packs.format.canonical import canonical_bytes as canonical_bytes
    from substrate.packs.format.content_address import PREFIX as PREFIX
    from substrate.packs.format.content_address import SHOWN as SHOWN
    from substrate.packs.format.content_address import URI as URI
    from substrate.packs.format.content_address import hex_of as hex_of
    from substrate.packs.format.content_address import is_hex as is_hex
    from substrate.packs.format.content_address import is_ref as is_ref
    from substrate.packs.format.content_address import ref_of as ref_of
    from substrate.packs.format.content_address import short as short
    from substrate.packs.format.content_address import uri_of as uri_of
    from substrate.packs.format.field_checks import CONTENT as CONTENT
    from substrate.packs.format.field_checks import OUTPUT as OUTPUT
    from substrate.packs.format.field_checks import Fields as Fields
    from substrate.packs.format.field_checks import Source as Source
    from substrate.packs.format.field_checks import whole_text as whole_text
    from substrate.packs.format.json_stream import JsonStream as JsonStream
    from substrate.packs.format.json_stream import JsonSyntaxError as JsonSyntaxError
    from substrate.packs.format.log_fields import Log as Log
    from substrate.packs.format.log_fields import LogContent as LogContent
    from substrate.packs.format.log_fields import LogStep as LogStep
    from substrate.packs.format.log_fields import check_log as check_log
    from substrate.packs.format.log_items import Item as Item
    from substrate.packs.format.log_items import Origin as Origin
    from substrate.packs.format.log_items import Problem as Problem
    from substrate.packs.format.log_items import gather as gather
    from substrate.packs.format.log_items import line_of as line_of
    from substrate.packs.format.manifest import NO_TIME as NO_TIME
    from substrate.packs.format.manifest import VERSION as VERSION
    from substrate.packs.format.manifest import Content as Content
    from substrate.packs.format.manifest import Environment as Environment
    from substrate.packs.format.manifest import Input as Input
    from substrate.packs.format.manifest import Manifest as Manifest
    from substrate.packs.format.manifest import Model as Model
    from substrate.packs.format.manifest import Output as Output
    from substrate.packs.format.manifest import Pack as Pack
    from substrate.packs.format.manifest import Prompt as Prompt
    from substrate.packs.format.manifest import Step as Step
    from substrate.packs.format.manifest import fields as fields
    from substrate.packs.format.manifest import step_fields as step_fields
    from substrate.packs.format.manifest import stored_bytes as stored_bytes
    from substrate.packs.format.manifest_reader import NotAManifestError as NotAManifestError
    from substrate.packs.format.manifest_reader import instant_ns as instant_ns
    from substrate.packs.format.manifest_reader import read_manifest as read_manifest
    from substrate.packs.format.spill_file import Scratch as Scratch
    from substrate.packs.format.spill_file import Spilled as Spilled
    from substrate.packs.format.spill_file import store_spilled as store_spilled

__getattr__ = lazy_names(
    __name__,
    {
        "canonical": "canonical_bytes",
        "content_address": "PREFIX, SHOWN, URI, hex_of, is_hex, is_ref, ref_of, short, uri_of",
        "field_checks": "CONTENT, Fields, OUTPUT, Source, whole_text",
        "json_stream": "JsonStream, JsonSyntaxError",
        "log_fields": "Log, LogContent, LogStep, check_log",
        "log_items": "Item, Origin, Problem, gather, line_of",
        "manifest": (
            "Content, Environment, Input, Manifest, Model, NO_TIME, Output, Pack, Prompt, "
            "Step, VERSION, fields, step_fields, stored_bytes"
        ),
        "manifest_reader": "NotAManifestError, instant_ns, read_manifest",
        "spill_file": "Scratch, Spilled, store_spilled",
    },
)
