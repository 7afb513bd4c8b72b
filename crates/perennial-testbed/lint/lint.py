"""Lints certificates with pkilint's PKIX profile: the validators of `lint_pkix_cert lint`, one process for all.

Reads JSON lines {"id", "der": base64} and writes a JSON line for each finding of severity NOTICE or worse.
"""

import base64
import json
import sys
import warnings

from cryptography import x509
from pkilint import loader
from pkilint.pkix import certificate, extension, name
from pkilint.validation import ValidationFindingSeverity as Severity

# An unusual certificate is for the linter to judge; cryptography only reads its names.
warnings.simplefilter("ignore")


PKIX = certificate.create_pkix_certificate_validator_container(
    certificate.create_decoding_validators(name.ATTRIBUTE_TYPE_MAPPINGS, extension.EXTENSION_MAPPINGS),
    [
        certificate.create_issuer_validator_container([]),
        certificate.create_validity_validator_container(),
        certificate.create_subject_validator_container([]),
        certificate.create_extensions_validator_container([]),
        certificate.create_spki_validator_container([]),
    ],
)


def lint(der):
    try:
        document = loader.load_der_certificate(der, "certificate")
    except ValueError as error:
        return [{"severity": "FATAL", "code": "unreadable", "message": str(error), "path": ""}]
    return [
        {
            "severity": description.finding.severity.name,
            "code": description.finding.code,
            "message": description.message or "",
            "path": result.node.path,
        }
        for result in PKIX.validate(document.root)
        for description in result.finding_descriptions
        if description.finding.severity <= Severity.NOTICE
    ]


def names(der):
    try:
        parsed = x509.load_der_x509_certificate(der)
        return {"subject": parsed.subject.rfc4514_string(), "issuer": parsed.issuer.rfc4514_string()}
    except ValueError:
        return {"subject": "", "issuer": ""}


def main():
    for line in sys.stdin:
        request = json.loads(line)
        der = base64.b64decode(request["der"], validate=True)
        for finding in lint(der):
            print(json.dumps({"id": request["id"], **names(der), **finding}))


main()
