"""A TLS client of Python's ssl module. Lines are as in the client in Go.

The defaults of `ssl.create_default_context` changed with Python 3.13: from then on every certificate is held to RFC 5280, and
any certificate of the bundle ends a path, self-signed or not. Whichever Python this is, the first argument says which
defaults it shall have.
"""

import base64
import socket
import ssl
import sys

PATIENCE_SECONDS = 30
STRICTER = ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
# Of X509_V_ERR_*: which certificate is missing or does not fit, when it is valid, and for whom.
ISSUER = {2, 6, 7, 18, 19, 20, 21, 29, 30, 31}
TIME = {9, 10, 13, 14}
NAME = {62, 63, 64}


def reason(code):
    named = [("issuer", ISSUER), ("time", TIME), ("name", NAME)]
    return next((name for name, codes in named if code in codes), "other")


def dial(defaults, greeting, port, name, bundle):
    context = ssl.create_default_context(cadata=base64.b64decode(bundle, validate=True).decode())
    if defaults == "3.13":
        context.verify_flags |= STRICTER
    else:
        context.verify_flags &= ~STRICTER
    try:
        with socket.create_connection(("127.0.0.1", int(port)), PATIENCE_SECONDS) as plain:
            with context.wrap_socket(plain, server_hostname=name) as connection:
                said = b""
                while part := connection.recv(4096):
                    said += part
    except ssl.SSLCertVerificationError as refusal:
        return f"refused\t{reason(refusal.verify_code)}\t{one_line(refusal.verify_message)}"
    except OSError as error:
        return f"broken\t{one_line(str(error))}"
    return "accepted" if said.decode() == greeting + "\n" else f"broken\tsaid {said!r}"


def one_line(text):
    return " ".join(text.split())


def main():
    defaults, greeting = sys.argv[1:]
    for line in sys.stdin:
        print(dial(defaults, greeting, *line.rstrip("\n").split("\t")))


main()
