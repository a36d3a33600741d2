"""A pack as an in-toto statement (SLSA provenance) in a DSSE envelope, for tools that use those.

Subjects are the pack's outputs; the inputs are the dependencies; the model is the builder.
"""

from __future__ import annotations

import base64

from substrate.packs.format import NO_TIME, Pack, canonical_bytes, hex_of, uri_of

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
_BUILD_TYPE = "urn:ctx:context-pack:0.1"


def statement(pack: Pack) -> dict[str, object]:
    manifest = pack.manifest
    metadata: dict[str, object] = {"invocationId": uri_of(pack.ref)}
    if manifest.created != NO_TIME:
        metadata["finishedOn"] = manifest.created
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": output.name, "digest": {"sha256": hex_of(output.content_ref)}}
            for output in manifest.outputs
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {
                    "model": manifest.model._asdict(),
                    "system_prompt": manifest.system_prompt,
                    "prompts": [prompt._asdict() for prompt in manifest.prompts],
                },
                "internalParameters": {"environment": manifest.environment._asdict()},
                "resolvedDependencies": [
                    {"name": item.name, "digest": {"sha256": hex_of(item.content_ref)}}
                    for item in manifest.inputs
                ],
            },
            "runDetails": {
                "builder": {"id": f"urn:ctx:model:{manifest.model.identifier}"},
                "metadata": metadata,
                "byproducts": [
                    {"uri": uri_of(pack.ref), "digest": {"sha256": hex_of(pack.ref)}},
                ],
            },
        },
    }


def envelope(pack: Pack) -> dict[str, object]:
    """The statement in a DSSE envelope, still unsigned."""
    payload = base64.b64encode(canonical_bytes(statement(pack))).decode()
    return {"payloadType": PAYLOAD_TYPE, "payload": payload, "signatures": []}
