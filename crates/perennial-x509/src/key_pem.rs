//! Reads private keys: finds the one key in a PEM text, and decides by its DER, not by its label.

use aws_lc_rs::error::KeyRejected;
use aws_lc_rs::signature::{EcdsaKeyPair, RsaKeyPair};
use der::asn1::{AnyRef, ObjectIdentifier, UintRef};
use der::{Tag, Tagged};
use perennial_core::key::{Curve, KeySpec};

use crate::asn1;
use crate::key::{KeyError, PrivateKey, signing};
use crate::pem::{self, Block, PemError};
use crate::public_key::{EC, KeyKind, RSA, bit_length};

/// Reads the one private key of a PEM text.
pub(crate) fn read(text: &[u8]) -> Result<PrivateKey, KeyError> {
    if let Some(encoding) = pem::byte_order_mark(text) {
        return Err(PemError::ByteOrderMark { encoding }.into());
    }
    let (mut keys, mut others, mut damage) = (Vec::new(), Vec::new(), None);
    for block in pem::blocks(text) {
        match block {
            Ok(block) if is_key(&block.place.label) => keys.push(block),
            Ok(block) => others.push(block.place),
            // A damaged certificate next to the key does not matter here.
            Err(error) => match error.place() {
                Some(place) if !is_key(&place.label) => others.push(place.clone()),
                Some(_) => return Err(error.into()),
                None => damage = damage.or(Some(error)),
            },
        }
    }
    match (&keys[..], damage) {
        ([key], _) => read_block(key),
        ([], Some(error)) => Err(error.into()),
        ([], None) => Err(KeyError::NoKey { found: pem::describe_found(text, &others) }),
        (several, _) => Err(KeyError::SeveralKeys { count: several.len() }),
    }
}

fn is_key(label: &str) -> bool {
    label.ends_with("PRIVATE KEY")
}

fn read_block(block: &Block) -> Result<PrivateKey, KeyError> {
    let label = block.place.label.as_str();
    if block.encrypted || label == "ENCRYPTED PRIVATE KEY" {
        return Err(KeyError::Encrypted { label: label.to_owned(), line: block.place.line });
    }
    match label {
        "RSA PRIVATE KEY" | "EC PRIVATE KEY" | "PRIVATE KEY" => read_der(&block.der),
        other => Err(KeyError::Unsupported { found: format!("in the form {other}") }),
    }
}

/// Distinguishes PKCS#8, PKCS#1 and SEC1 by their second element, because labels are sometimes wrong
/// and Go's readers ignore them.
fn read_der(der: &[u8]) -> Result<PrivateKey, KeyError> {
    let parts = AnyRef::try_from(der).and_then(asn1::sequence).map_err(malformed("its outer SEQUENCE"))?;
    match parts[..] {
        [_, algorithm, _, ..] if algorithm.tag() == Tag::Sequence => read_pkcs8(der, algorithm),
        [_, modulus, _, ..] if modulus.tag() == Tag::Integer => read_pkcs1(der, modulus),
        [_, secret, ref rest @ ..] if secret.tag() == Tag::OctetString => read_sec1(der, rest),
        _ => Err(KeyError::Malformed { what: "it is none of PKCS#1, SEC1 and PKCS#8".to_owned() }),
    }
}

fn read_pkcs8(der: &[u8], algorithm: AnyRef<'_>) -> Result<PrivateKey, KeyError> {
    let what = "its PKCS#8 algorithm";
    let parts = asn1::sequence(algorithm).map_err(malformed(what))?;
    let oid = parts.first().ok_or_else(|| der::ErrorKind::Failed.to_error());
    let oid: ObjectIdentifier = oid.and_then(|oid| oid.decode_as()).map_err(malformed(what))?;
    match oid {
        RSA => {
            let info = pkcs8::PrivateKeyInfoRef::try_from(der)
                .map_err(|_| KeyError::Malformed { what: "its PKCS#8 wrapper".to_owned() })?;
            let pkcs1 = info.private_key.as_bytes();
            let inner = AnyRef::try_from(pkcs1).and_then(asn1::sequence).map_err(malformed("its PKCS#1 SEQUENCE"))?;
            let modulus = inner.get(1).copied().ok_or_else(|| der::ErrorKind::Failed.to_error());
            read_pkcs1(pkcs1, modulus.map_err(malformed("its PKCS#1 modulus"))?)
        }
        EC => read_ec(&KeyKind::curve(parts.get(1).copied()), "PKCS#8", |curve| {
            EcdsaKeyPair::from_pkcs8(signing(curve), der)
        }),
        other => Err(KeyError::Unsupported { found: KeyKind::describe(other).to_string() }),
    }
}

fn read_pkcs1(der: &[u8], modulus: AnyRef<'_>) -> Result<PrivateKey, KeyError> {
    let modulus: UintRef<'_> = modulus.decode_as().map_err(malformed("its PKCS#1 modulus"))?;
    let bits = bit_length(modulus.as_bytes());
    if bits < 2048 {
        return Err(KeyError::Unsupported { found: format!("RSA {bits}") });
    }
    PrivateKey::from_rsa(RsaKeyPair::from_der(der).map_err(rejected("PKCS#1"))?)
}

fn read_sec1(der: &[u8], optional: &[AnyRef<'_>]) -> Result<PrivateKey, KeyError> {
    let parameters = optional.iter().find(|part| asn1::context_number(**part) == Some(0));
    let public_key = optional.iter().find(|part| asn1::context_number(**part) == Some(1));
    if parameters.is_none() && public_key.is_none() {
        return Err(KeyError::AmbiguousCurve);
    }
    let parameters = parameters.and_then(|explicit| AnyRef::try_from(explicit.value()).ok());
    read_ec(&KeyKind::curve(parameters), "SEC1", |curve| EcdsaKeyPair::from_private_key_der(signing(curve), der))
}

/// Without a named curve (explicit parameters, or only a public key), the library tries each curve.
fn read_ec(
    kind: &KeyKind,
    encoding: &'static str,
    import: impl Fn(Curve) -> Result<EcdsaKeyPair, KeyRejected>,
) -> Result<PrivateKey, KeyError> {
    match kind {
        KeyKind::Known(KeySpec::Ecdsa(curve)) => {
            PrivateKey::from_ecdsa(*curve, import(*curve).map_err(rejected(encoding))?)
        }
        KeyKind::OtherCurve { curve } if curve.contains('.') => Err(KeyError::Unsupported { found: kind.to_string() }),
        _ => {
            let found = [Curve::P256, Curve::P384, Curve::P521]
                .into_iter()
                .find_map(|curve| Some((curve, import(curve).ok()?)))
                .ok_or_else(|| KeyError::Unsupported { found: "ECDSA on an unnamed curve that fits none".to_owned() });
            found.and_then(|(curve, pair)| PrivateKey::from_ecdsa(curve, pair))
        }
    }
}

fn malformed(what: &'static str) -> impl Fn(der::Error) -> KeyError {
    move |error| KeyError::Malformed { what: format!("{what}: {}", error.kind()) }
}

fn rejected(encoding: &'static str) -> impl Fn(KeyRejected) -> KeyError {
    move |reason| KeyError::Malformed { what: format!("its {encoding} content is refused ({reason})") }
}

#[cfg(test)]
mod tests {
    use der::pem::LineEnding;

    use super::*;
    use crate::fixtures::{key, tlv};

    fn pem(label: &str, der: &[u8]) -> String {
        der::pem::encode_string(label, LineEnding::LF, der).unwrap()
    }

    fn der(pem: &str) -> Vec<u8> {
        let blocks = pem::blocks(pem.as_bytes());
        blocks.into_iter().next().unwrap().ok().unwrap().der.to_vec()
    }

    fn check_same(text: &str, expected: &PrivateKey) {
        let read = PrivateKey::from_pem(text.as_bytes()).unwrap();
        assert_eq!(read.public_key(), expected.public_key(), "{text}");
    }

    fn check_error(text: impl AsRef<[u8]>, expected: &str) {
        let error = PrivateKey::from_pem(text.as_ref()).unwrap_err();
        let mut message = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            message = format!("{message}: {source}");
        }
        assert_eq!(message, expected);
    }

    #[test]
    fn every_kind_of_key_round_trips_through_every_encoding() {
        for spec in KeySpec::ALL {
            let key = key(spec);
            check_same(&key.to_pem().unwrap(), key);
            check_same(&key.to_pkcs8_pem().unwrap(), key);
        }
    }

    #[test]
    fn text_around_a_key_is_ignored() {
        let key = key("ECDSA P384".parse().unwrap());
        let plain = key.to_pem().unwrap();
        check_same(&plain.replace('\n', "\r\n"), key);
        check_same(&format!("# a comment\n\n{}\n\n# another\n", *plain), key);
        check_same(&format!("{}{}", pem("EC PARAMETERS", &[6, 5, 0x2b, 0x81, 4, 0, 0x22]), *plain), key);
        check_same(&format!("{}{}", pem("CERTIFICATE", b"whatever"), *plain), key);
        check_same(&format!("-----BEGIN CERTIFICATE-----\n{}", *plain), key);
        let body: String = plain.lines().filter(|line| !line.starts_with('-')).collect();
        let wrapped = |columns: usize| {
            let lines: Vec<_> = body.as_bytes().chunks(columns).map(|line| String::from_utf8_lossy(line)).collect();
            format!("-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----", lines.join("\n"))
        };
        check_same(&wrapped(76), key);
        check_same(&wrapped(10_000), key);
        check_same(&plain.replace("EC PRIVATE KEY", "PRIVATE KEY"), key);
    }

    #[test]
    fn a_text_without_exactly_one_key_is_rejected() {
        let plain = key("ECDSA P256".parse().unwrap()).to_pem().unwrap();
        check_error("", "no private key found: the text is empty");
        check_error("hello", "no private key found: the text of 5 bytes has no PEM block");
        check_error(pem("CERTIFICATE", b"x"), "no private key found: the text has only CERTIFICATE");
        check_error(plain.repeat(2), "2 private keys found where exactly one is accepted");
        check_error(
            format!("\u{feff}{}", *plain),
            "failed to read the PEM of a private key: the text starts with a UTF-8 byte order mark, \
             which PEM readers do not skip",
        );
        check_error(
            format!("  {}", *plain),
            "failed to read the PEM of a private key: line 1: \"-----BEGIN\" does not start its line",
        );
        check_error(
            "-----BEGIN PRIVATE KEY-----\n????\n-----END PRIVATE KEY-----",
            "failed to read the PEM of a private key: PEM block 1 of 1 (PRIVATE KEY, line 1): not base64",
        );
        check_error(
            "-----BEGIN PRIVATE KEY-----\nAAAA\n",
            "failed to read the PEM of a private key: PEM block 1 of 1 (PRIVATE KEY, line 1): no END line",
        );
    }

    #[test]
    fn encrypted_keys_are_named_as_such() {
        check_error(
            pem("ENCRYPTED PRIVATE KEY", b"x"),
            "the private key at line 1 (ENCRYPTED PRIVATE KEY) is encrypted: only unencrypted keys are accepted",
        );
        check_error(
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n\
             -----END RSA PRIVATE KEY-----\n",
            "the private key at line 1 (RSA PRIVATE KEY) is encrypted: only unencrypted keys are accepted",
        );
    }

    #[test]
    fn other_kinds_of_keys_are_named() {
        let accepted = "accepted are RSA from 2048 bits and ECDSA P256, P384, P521";
        let refused = |text: String, kind: &str| check_error(text, &format!("the private key is {kind}: {accepted}"));
        let zero: &[u8] = &[2, 1, 0];
        let one: &[u8] = &[2, 1, 1];

        let ed25519 = tlv(0x30, &[&[6, 3, 0x2b, 0x65, 0x70]]);
        let secret = tlv(4, &[&tlv(4, &[&[7; 32]])]);
        refused(pem("PRIVATE KEY", &tlv(0x30, &[zero, &ed25519, &secret])), "Ed25519");

        let mut pss = der(&key("RSA 2048".parse().unwrap()).to_pkcs8_pem().unwrap());
        let arc = pss.windows(9).position(|oid| oid == [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1]).unwrap();
        pss[arc + 8] = 10;
        refused(pem("PRIVATE KEY", &pss), "RSA-PSS");

        let mut modulus = [0x55; 128];
        modulus[0] = 0xc0;
        let small = tlv(0x30, &[zero, &tlv(2, &[&[0], &modulus]), &[2, 3, 1, 0, 1]]);
        refused(pem("RSA PRIVATE KEY", &small), "RSA 1024");

        let secp256k1 = tlv(0x30, &[one, &tlv(4, &[&[7; 32]]), &tlv(0xa0, &[&[6, 5, 0x2b, 0x81, 4, 0, 0x0a]])]);
        refused(pem("EC PRIVATE KEY", &secp256k1), "ECDSA secp256k1");
        refused(pem("OPENSSH PRIVATE KEY", b"x"), "in the form OPENSSH PRIVATE KEY");
    }

    #[test]
    fn a_curve_is_never_guessed() {
        let bare = tlv(0x30, &[&[2, 1, 1], &tlv(4, &[&[7; 32]])]);
        check_error(pem("EC PRIVATE KEY", &bare), &KeyError::AmbiguousCurve.to_string());
        for spec in KeySpec::ALL.into_iter().filter(|spec| spec.curve().is_some()) {
            let key = key(spec);
            let whole = der(&key.to_pem().unwrap());
            let parts = AnyRef::try_from(&whole[..]).and_then(asn1::sequence).unwrap();
            let without = |number: u32| {
                let kept: Vec<_> =
                    parts.iter().filter(|part| asn1::context_number(**part) != Some(number)).copied().collect();
                let kept: Vec<_> = kept.into_iter().map(|part| asn1::whole(part).unwrap()).collect();
                pem("EC PRIVATE KEY", &tlv(0x30, &kept.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            };
            check_same(&without(0), key);
            check_same(&without(1), key);
        }
    }

    #[test]
    fn damage_inside_a_key_is_an_error_without_its_bytes() {
        let whole = der(&key("ECDSA P256".parse().unwrap()).to_pem().unwrap());
        for cut in 0..whole.len() {
            let error = PrivateKey::from_pem(pem("EC PRIVATE KEY", &whole[..cut]).as_bytes()).unwrap_err();
            let message = error.to_string();
            assert!(message.starts_with("the private key is malformed: "), "{cut}: {message}");
        }
        let mut trailing = whole;
        trailing.push(0);
        assert!(PrivateKey::from_pem(pem("EC PRIVATE KEY", &trailing).as_bytes()).is_err());
    }
}
