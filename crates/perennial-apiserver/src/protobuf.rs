//! The few objects that typed clients send as protobuf and nothing else: read into the JSON that everything else is.
//!
//! The wire format is that of Protocol Buffers; the numbers of the fields are those of the `generated.proto` files of
//! Kubernetes' API, which never change.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value, json};

/// The content type of such bodies.
pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Four bytes before the envelope.
const MAGIC: &[u8] = b"k8s\0";

/// How deep messages may be nested: more than any of these is.
const MAX_DEPTH: u8 = 12;

/// Why bytes are no object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    /// It does not begin as it should.
    #[error("it does not begin with the mark of Kubernetes' protobuf")]
    Mark,
    /// It ends in the middle of something, or is nested too deeply.
    #[error("it is no protobuf message")]
    Message,
    /// Nobody needed to read this kind so far.
    #[error("objects of kind {0} are accepted as JSON only")]
    Kind(String),
}

/// What a field holds.
#[derive(Clone, Copy)]
enum Holds {
    Text,
    Bool,
    Number,
    /// Seconds since 1970 in a message of their own.
    Time,
    Message(&'static [Field]),
    /// Text to text.
    Texts,
    /// Text to bytes, which JSON has as base64.
    Bytes,
}

struct Field {
    number: u64,
    name: &'static str,
    holds: Holds,
    repeated: bool,
}

const fn one(number: u64, name: &'static str, holds: Holds) -> Field {
    Field { number, name, holds, repeated: false }
}

const fn many(number: u64, name: &'static str, holds: Holds) -> Field {
    Field { number, name, holds, repeated: true }
}

const OWNER: &[Field] = &[
    one(1, "kind", Holds::Text),
    one(3, "name", Holds::Text),
    one(4, "uid", Holds::Text),
    one(5, "apiVersion", Holds::Text),
    one(6, "controller", Holds::Bool),
    one(7, "blockOwnerDeletion", Holds::Bool),
];

const METADATA: Field = one(
    1,
    "metadata",
    Holds::Message(&[
        one(1, "name", Holds::Text),
        one(2, "generateName", Holds::Text),
        one(3, "namespace", Holds::Text),
        one(5, "uid", Holds::Text),
        one(6, "resourceVersion", Holds::Text),
        one(7, "generation", Holds::Number),
        one(8, "creationTimestamp", Holds::Time),
        one(11, "labels", Holds::Texts),
        one(12, "annotations", Holds::Texts),
        many(13, "ownerReferences", Holds::Message(OWNER)),
        many(14, "finalizers", Holds::Text),
    ]),
);

const REFERENCE: &[Field] = &[one(3, "name", Holds::Text)];
const LOCAL_REFERENCE: &[Field] = &[one(1, "name", Holds::Text)];

const RULE: &[Field] = &[
    many(1, "verbs", Holds::Text),
    many(2, "apiGroups", Holds::Text),
    many(3, "resources", Holds::Text),
    many(4, "resourceNames", Holds::Text),
    many(5, "nonResourceURLs", Holds::Text),
];
const AGGREGATION: Field = one(
    3,
    "aggregationRule",
    Holds::Message(&[many(1, "clusterRoleSelectors", Holds::Message(&[one(1, "matchLabels", Holds::Texts)]))]),
);
const BINDING: &[Field] = &[
    METADATA,
    many(
        2,
        "subjects",
        Holds::Message(&[
            one(1, "kind", Holds::Text),
            one(2, "apiGroup", Holds::Text),
            one(3, "name", Holds::Text),
            one(4, "namespace", Holds::Text),
        ]),
    ),
    one(
        3,
        "roleRef",
        Holds::Message(&[one(1, "apiGroup", Holds::Text), one(2, "kind", Holds::Text), one(3, "name", Holds::Text)]),
    ),
];

/// The kinds that kubectl makes without a file.
const KINDS: &[(&str, &[Field])] = &[
    (
        "ConfigMap",
        &[METADATA, one(2, "data", Holds::Texts), one(3, "binaryData", Holds::Bytes), one(4, "immutable", Holds::Bool)],
    ),
    (
        "Secret",
        &[
            METADATA,
            one(2, "data", Holds::Bytes),
            one(3, "type", Holds::Text),
            one(4, "stringData", Holds::Texts),
            one(5, "immutable", Holds::Bool),
        ],
    ),
    (
        "Namespace",
        &[
            METADATA,
            one(2, "spec", Holds::Message(&[many(1, "finalizers", Holds::Text)])),
            one(3, "status", Holds::Message(&[one(1, "phase", Holds::Text)])),
        ],
    ),
    (
        "ServiceAccount",
        &[
            METADATA,
            many(2, "secrets", Holds::Message(REFERENCE)),
            many(3, "imagePullSecrets", Holds::Message(LOCAL_REFERENCE)),
            one(4, "automountServiceAccountToken", Holds::Bool),
        ],
    ),
    (
        "SelfSubjectAccessReview",
        &[
            METADATA,
            one(
                2,
                "spec",
                Holds::Message(&[
                    one(
                        1,
                        "resourceAttributes",
                        Holds::Message(&[
                            one(1, "namespace", Holds::Text),
                            one(2, "verb", Holds::Text),
                            one(3, "group", Holds::Text),
                            one(4, "version", Holds::Text),
                            one(5, "resource", Holds::Text),
                            one(6, "subresource", Holds::Text),
                            one(7, "name", Holds::Text),
                        ]),
                    ),
                    one(
                        2,
                        "nonResourceAttributes",
                        Holds::Message(&[one(1, "path", Holds::Text), one(2, "verb", Holds::Text)]),
                    ),
                ]),
            ),
        ],
    ),
    ("SelfSubjectReview", &[METADATA]),
    ("Role", &[METADATA, many(2, "rules", Holds::Message(RULE))]),
    ("ClusterRole", &[METADATA, many(2, "rules", Holds::Message(RULE)), AGGREGATION]),
    ("RoleBinding", BINDING),
    ("ClusterRoleBinding", BINDING),
    (
        "DeleteOptions",
        &[
            one(1, "gracePeriodSeconds", Holds::Number),
            one(
                2,
                "preconditions",
                Holds::Message(&[one(1, "uid", Holds::Text), one(2, "resourceVersion", Holds::Text)]),
            ),
            one(3, "orphanDependents", Holds::Bool),
            one(4, "propagationPolicy", Holds::Text),
            many(5, "dryRun", Holds::Text),
        ],
    ),
];

/// The object in a body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, Wrong> {
    const TYPE: &[Field] = &[one(1, "apiVersion", Holds::Text), one(2, "kind", Holds::Text)];
    let envelope = body.strip_prefix(MAGIC).ok_or(Wrong::Mark)?;
    let (mut kind, mut raw) = (Map::new(), &[][..]);
    for (number, content) in Fields(envelope).collect::<Result<Vec<_>, _>>()? {
        match (number, content) {
            (1, Content::Bytes(bytes)) => kind = message(bytes, TYPE, 0)?,
            (2, Content::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let name = kind.get("kind").and_then(Value::as_str).unwrap_or_default();
    let (_, fields) = KINDS.iter().find(|(known, _)| *known == name).ok_or_else(|| Wrong::Kind(name.to_owned()))?;
    let object = message(raw, fields, 0)?;
    Ok(Value::Object(kind.into_iter().chain(object).collect()))
}

/// What stands behind a field's number.
#[derive(Clone, Copy)]
enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn message(bytes: &[u8], fields: &[Field], depth: u8) -> Result<Map<String, Value>, Wrong> {
    if depth > MAX_DEPTH {
        return Err(Wrong::Message);
    }
    let mut object = Map::new();
    for entry in Fields(bytes) {
        let (number, content) = entry?;
        let Some(field) = fields.iter().find(|field| field.number == number) else { continue };
        if let Holds::Texts | Holds::Bytes = field.holds {
            let (key, value) = pair(content, matches!(field.holds, Holds::Bytes))?;
            let map = object.entry(field.name).or_insert_with(|| json!({}));
            map[key] = value;
            continue;
        }
        let value = value(content, field.holds, depth)?;
        match (field.repeated, object.get_mut(field.name)) {
            (true, Some(Value::Array(list))) => list.push(value),
            (true, _) => drop(object.insert(field.name.to_owned(), json!([value]))),
            // Texts and numbers that are empty are not there; that is what protobuf means by them.
            (false, _) if value == json!("") => {}
            (false, _) => drop(object.insert(field.name.to_owned(), value)),
        }
    }
    Ok(object)
}

fn value(content: Content<'_>, holds: Holds, depth: u8) -> Result<Value, Wrong> {
    match (holds, content) {
        (Holds::Text, Content::Bytes(bytes)) => text(bytes).map(Value::from),
        (Holds::Bool, Content::Number(number)) => Ok((number != 0).into()),
        (Holds::Number, Content::Number(number)) => Ok(number.cast_signed().into()),
        (Holds::Message(fields), Content::Bytes(bytes)) => message(bytes, fields, depth + 1).map(Value::Object),
        (Holds::Time, Content::Bytes(bytes)) => time(bytes),
        _ => Err(Wrong::Message),
    }
}

fn time(bytes: &[u8]) -> Result<Value, Wrong> {
    let seconds = Fields(bytes).find_map(|entry| match entry {
        Ok((1, Content::Number(seconds))) => Some(seconds.cast_signed()),
        _ => None,
    });
    // The beginning of time stands for no time at all.
    let Some(seconds) = seconds.filter(|seconds| *seconds > 0) else { return Ok(Value::Null) };
    let time = jiff::Timestamp::from_second(seconds).map_err(|_| Wrong::Message)?;
    Ok(time.to_string().into())
}

/// An entry of a map.
fn pair(content: Content<'_>, is_bytes: bool) -> Result<(String, Value), Wrong> {
    let Content::Bytes(entry) = content else { return Err(Wrong::Message) };
    let (mut key, mut value) = (String::new(), &[][..]);
    for field in Fields(entry) {
        match field? {
            (1, Content::Bytes(bytes)) => key = text(bytes)?,
            (2, Content::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    let value = if is_bytes { BASE64_STANDARD.encode(value) } else { text(value)? };
    Ok((key, value.into()))
}

fn text(bytes: &[u8]) -> Result<String, Wrong> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Wrong::Message)
}

/// The fields of a message, one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Content<'a>), Wrong>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.entry().ok_or(Wrong::Message);
        if entry.is_err() {
            self.0 = &[];
        }
        Some(entry)
    }
}

impl<'a> Fields<'a> {
    fn entry(&mut self) -> Option<(u64, Content<'a>)> {
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => Content::Number(self.varint()?),
            1 => Content::Bytes(self.take(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Content::Bytes(self.take(length)?)
            }
            5 => Content::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((tag >> 3, content))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        assert!(length < 128);
        [&[number << 3 | 2, length], content].concat()
    }

    fn body(kind: &str, object: &[u8]) -> Vec<u8> {
        let types = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &types), &field(2, object)].concat()
    }

    #[test]
    fn a_secret_is_read() {
        let metadata = [field(1, b"tls"), field(3, b"shop"), field(8, &[])].concat();
        let entry = [field(1, b"tls.crt"), field(2, b"\xff\x00")].concat();
        let object = [field(1, &metadata), field(2, &entry), field(3, b"kubernetes.io/tls")].concat();
        assert_eq!(
            decode(&body("Secret", &object)).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "tls", "namespace": "shop", "creationTimestamp": null},
                "data": {"tls.crt": "/wA="}, "type": "kubernetes.io/tls"
            })
        );
    }

    #[test]
    fn lists_maps_and_numbers_are_read() {
        let metadata = [field(1, b"a"), field(14, b"x"), field(14, b"y")].concat();
        let label = [field(1, b"k"), field(2, b"v")].concat();
        let metadata = [metadata, field(11, &label), vec![7 << 3, 3]].concat();
        let object = [field(1, &metadata), vec![4 << 3, 1]].concat();
        let found = decode(&body("ConfigMap", &object)).unwrap();
        assert_eq!(found["metadata"]["finalizers"], json!(["x", "y"]));
        assert_eq!(found["metadata"]["labels"], json!({"k": "v"}));
        assert_eq!((&found["metadata"]["generation"], &found["immutable"]), (&json!(3), &json!(true)));
    }

    #[test]
    fn what_is_none_is_refused() {
        assert_eq!(decode(b"{}"), Err(Wrong::Mark));
        assert_eq!(decode(b"k8s\0\x0a"), Err(Wrong::Message));
        assert_eq!(decode(&body("Pod", b"")), Err(Wrong::Kind("Pod".to_owned())));
        let endless = [0xff_u8; 11];
        assert_eq!(decode(&body("Secret", &endless)), Err(Wrong::Message));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        // Every cut of a good body, and every single changed byte.
        let entry = [field(1, b"key"), field(2, b"value")].concat();
        let good = body("ConfigMap", &[field(1, &field(1, b"name")), field(2, &entry)].concat());
        for end in 0..good.len() {
            drop(decode(&good[..end]));
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = good.clone();
                changed[end] = byte;
                drop(decode(&changed));
            }
        }
    }
}
