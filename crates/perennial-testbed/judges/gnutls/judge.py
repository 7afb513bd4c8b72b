"""The GnuTLS judge: libgnutls answers every case on standard input with a line on standard output.

`certtool --verify` calls the same function, but cannot be asked about another instant than now (before
GnuTLS 3.8) and would need a process per case. Lines are as in the Go judge.
"""

import base64
import ctypes
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_long, c_uint, c_void_p

DER = 0
X509 = 1
DNS_HOSTNAME = 1
KEY_PURPOSE_OID = 2
PURPOSES = {"server": b"1.3.6.1.5.5.7.3.1", "client": b"1.3.6.1.5.5.7.3.2"}
# GNUTLS_PROFILE_MEDIUM in the upper byte of the flags, as `certtool --verify-profile medium` sets it:
# at least 112 bits, so RSA 2048 passes and RSA 1024 and SHA-1 do not.
FLAGS = 4 << 24

try:
    gnutls = ctypes.CDLL("libgnutls.so.30")
except OSError as error:
    sys.exit(f"{error}; install it with `make tools`")
gnutls.gnutls_strerror.restype = c_char_p
gnutls.gnutls_strerror.argtypes = [c_int]
gnutls.gnutls_x509_crt_deinit.argtypes = [c_void_p]
gnutls.gnutls_x509_trust_list_deinit.argtypes = [c_void_p, c_uint]


class Datum(Structure):
    _fields_ = [("data", c_char_p), ("size", c_uint)]


class TypedData(Structure):
    _fields_ = [("type", c_int), ("data", c_char_p), ("size", c_uint)]


instant = 0


@ctypes.CFUNCTYPE(c_long, POINTER(c_long))
def clock(out):
    if out:
        out[0] = instant
    return instant


class Refused(Exception):
    pass


def check(code):
    if code < 0:
        raise Refused(gnutls.gnutls_strerror(code).decode())


def certificates(field):
    """The handles of the certificates. The caller frees them; on a refusal they leak until the process ends."""
    handles = []
    for text in filter(None, field.split(",")):
        der = base64.b64decode(text, validate=True)
        handle = c_void_p()
        check(gnutls.gnutls_x509_crt_init(byref(handle)))
        check(gnutls.gnutls_x509_crt_import(handle, byref(Datum(der, len(der))), DER))
        handles.append(handle.value)
    return (c_void_p * len(handles))(*handles)


def judge(purpose, at, name, chain, anchors):
    global instant
    instant = int(at)
    chain = certificates(chain)
    anchors = certificates(anchors)
    if len(chain) == 0:
        raise Refused("the chain is empty")
    trust = c_void_p()
    check(gnutls.gnutls_x509_trust_list_init(byref(trust), c_uint(0)))
    check(gnutls.gnutls_x509_trust_list_add_cas(trust, anchors, c_uint(len(anchors)), c_uint(0)))

    wanted = [TypedData(KEY_PURPOSE_OID, PURPOSES[purpose], 0)]
    if name:
        # An IP address in text form is compared with the IP SANs.
        wanted.append(TypedData(DNS_HOSTNAME, name.encode(), 0))
    status = c_uint(0)
    check(
        gnutls.gnutls_x509_trust_list_verify_crt2(
            trust, chain, c_uint(len(chain)), (TypedData * len(wanted))(*wanted), c_uint(len(wanted)),
            c_uint(FLAGS), byref(status), None,
        )
    )
    # The list owns the anchors from here on and frees them.
    gnutls.gnutls_x509_trust_list_deinit(trust, 1)
    for handle in chain:
        gnutls.gnutls_x509_crt_deinit(handle)
    if status.value:
        raise Refused(describe(status))


def describe(status):
    text = Datum()
    check(gnutls.gnutls_certificate_verification_status_print(status, X509, byref(text), 0))
    return " ".join(text.data.decode().split())


def main():
    gnutls.gnutls_global_set_time_function(clock)
    answers = []
    for line in sys.stdin:
        try:
            judge(*line.rstrip("\n").split("\t"))
            answers.append("accepted\tok\n")
        except Refused as refusal:
            answers.append(f"refused\t{refusal}\n")
    sys.stdout.write("".join(answers))


main()
