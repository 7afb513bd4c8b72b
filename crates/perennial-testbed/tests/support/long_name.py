"""Writes NAME.pem, the node bootstrapper's client certificate signed by ISSUER's key."""

import datetime
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME, ISSUER = sys.argv[1:]
USER = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"

with open(f"{ISSUER}.pem", "rb") as file:
    issuer = x509.load_pem_x509_certificate(file.read())
with open(f"{ISSUER}.key", "rb") as file:
    issuer_key = serialization.load_pem_private_key(file.read(), None)
issuer_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
public_key = ec.generate_private_key(ec.SECP256R1()).public_key()
certificate = (
    x509.CertificateBuilder()
    .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, USER, _validate=False)]))
    .issuer_name(issuer.subject)
    .public_key(public_key)
    .serial_number(x509.random_serial_number())
    .not_valid_before(datetime.datetime(2026, 1, 1))
    .not_valid_after(datetime.datetime(2027, 1, 1))
    .add_extension(x509.BasicConstraints(False, None), True)
    .add_extension(x509.KeyUsage(True, *[False] * 8), True)
    .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)
    .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), False)
    .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), False)
    .sign(issuer_key, hashes.SHA256())
)
with open(f"{NAME}.pem", "wb") as file:
    file.write(certificate.public_bytes(serialization.Encoding.PEM))
