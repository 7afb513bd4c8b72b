//! Decodes the protobuf objects of typed clients into JSON.
//!
//! The field numbers are those of the `generated.proto` files of the Kubernetes API, which never change. Unknown fields are
//! rejected: dropping them would lose data silently.

mod messages;
mod wire;

use base64::prelude::{BASE64_STANDARD, Engine};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use messages::{Field, Holds};
use wire::{Broken, Content, Fields};

/// The content type of protobuf bodies.
pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The four bytes before the envelope.
const MAGIC: &[u8] = b"k8s\0";

/// The supported kinds; each is a message of that name.
const KINDS: &[&str] = &[
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "DeleteOptions",
    "Deployment",
    "Lease",
    "Namespace",
    "Role",
    "RoleBinding",
    "Secret",
    "SelfSubjectAccessReview",
    "SelfSubjectReview",
    "Service",
    "ServiceAccount",
];

/// Why a body cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    /// The magic bytes are missing.
    #[error("it does not begin with the magic bytes of Kubernetes protobuf")]
    Mark,
    /// The message is truncated or malformed.
    #[error("it is not a protobuf message")]
    Message,
    /// The kind is not supported.
    #[error("objects of kind {0} are accepted as JSON only")]
    Kind(String),
    /// The field is unknown: it is newer, or of another version.
    #[error("field {number} of {message} is not known; the object is accepted as JSON")]
    Unknown {
        /// The message that has the field.
        message: &'static str,
        /// The field's number.
        number: u64,
    },
    /// The field has another type, or is repeated.
    #[error("field {number} of {message} has a wrong type or is repeated")]
    Field {
        /// The message that has the field.
        message: &'static str,
        /// The field's number.
        number: u64,
    },
}

impl From<Broken> for Wrong {
    fn from(_: Broken) -> Wrong {
        Wrong::Message
    }
}

/// Returns the object in a body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, Wrong> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Wrong::Mark)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for entry in Fields(envelope) {
        match entry? {
            (1, Content::Bytes(bytes)) => {
                let [version, name] = parts(bytes)?;
                (api_version, kind) = (text(version)?, text(name)?);
            }
            (2, Content::Bytes(bytes)) => raw = bytes,
            // The encoding and content type of the object, if they differ.
            (3 | 4, Content::Bytes([])) => {}
            (number, _) => return Err(Wrong::Unknown { message: "Unknown", number }),
        }
    }
    let message = *KINDS.iter().find(|known| **known == kind).ok_or_else(|| Wrong::Kind(kind.clone()))?;
    let mut object = Map::from_iter([("apiVersion".to_owned(), api_version.into()), ("kind".to_owned(), kind.into())]);
    read(raw, message, &mut object)?;
    Ok(Value::Object(object))
}

/// Decodes a message into an object.
fn read(bytes: &[u8], message: &'static str, object: &mut Map<String, Value>) -> Result<(), Wrong> {
    let fields = messages::message(message);
    for entry in Fields(bytes) {
        let (number, content) = entry?;
        let Field { name, holds, keeps_zero } = fields.get(&number).ok_or(Wrong::Unknown { message, number })?;
        // An error inside this field is reported for this field, unless it names an inner field.
        let here = |error| if error == Wrong::Message { Wrong::Field { message, number } } else { error };
        match holds {
            Holds::Inline(inner) => read(bytes_of(content).map_err(here)?, inner, object)?,
            Holds::List(of) => {
                let item = value(of, content).map_err(here)?;
                let list = object.entry(*name).or_insert_with(|| json!([]));
                list.as_array_mut().ok_or(Wrong::Message)?.push(item);
            }
            Holds::Map(of) => {
                let (key, entry) = pair(of, content).map_err(here)?;
                object.entry(*name).or_insert_with(|| json!({}))[key] = entry;
            }
            holds => {
                let value = value(holds, content).map_err(here)?;
                if (*keeps_zero || !is_zero(&value)) && object.insert((*name).to_owned(), value).is_some() {
                    return Err(Wrong::Field { message, number });
                }
            }
        }
    }
    Ok(())
}

/// Returns true if JSON leaves the value out; never for a struct.
fn is_zero(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(false)) || *value == json!("") || *value == json!(0)
}

fn value(holds: &Holds, content: Content<'_>) -> Result<Value, Wrong> {
    match holds {
        Holds::Text => text(content).map(Value::from),
        Holds::Bool => number(content).map(|number| (number != 0).into()),
        Holds::Number => number(content).map(Value::from),
        Holds::Bytes => bytes_of(content).map(|bytes| BASE64_STANDARD.encode(bytes).into()),
        Holds::Time => time(content, |time| format!("{time:.0}")),
        Holds::MicroTime => time(content, |time| format!("{time:.6}")),
        Holds::Quantity => {
            let [quantity] = parts(bytes_of(content)?)?;
            text(quantity).map(Value::from)
        }
        Holds::NumberOrText => {
            let [kind, as_number, as_text] = parts(bytes_of(content)?)?;
            if number(kind)? == 0 { number(as_number).map(Value::from) } else { text(as_text).map(Value::from) }
        }
        Holds::Texts => Fields(bytes_of(content)?).map(|entry| text(only(entry?)?).map(Value::from)).collect(),
        Holds::Json => {
            let [json] = parts(bytes_of(content)?)?;
            serde_json::from_slice(bytes_of(json)?).map_err(|_| Wrong::Message)
        }
        Holds::Message(message) => {
            let mut object = Map::new();
            read(bytes_of(content)?, message, &mut object)?;
            Ok(Value::Object(object))
        }
        Holds::Inline(_) | Holds::List(_) | Holds::Map(_) => Err(Wrong::Message),
    }
}

/// Decodes seconds since 1970 and their fraction. An empty message is no time.
fn time(content: Content<'_>, show: impl Fn(Timestamp) -> String) -> Result<Value, Wrong> {
    let bytes = bytes_of(content)?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let [seconds, nanoseconds] = parts(bytes)?;
    let nanoseconds = i32::try_from(number(nanoseconds)?).map_err(|_| Wrong::Message)?;
    let time = Timestamp::new(number(seconds)?, nanoseconds).map_err(|_| Wrong::Message)?;
    Ok(show(time).into())
}

/// Decodes an entry of a map.
fn pair(of: &Holds, content: Content<'_>) -> Result<(String, Value), Wrong> {
    let [key, entry] = parts(bytes_of(content)?)?;
    Ok((text(key)?, value(of, entry)?))
}

/// Returns the fields of a message that has only fields 1, 2, and so on. Absent fields are empty.
fn parts<const COUNT: usize>(bytes: &[u8]) -> Result<[Content<'_>; COUNT], Wrong> {
    let mut parts = [Content::Absent; COUNT];
    for entry in Fields(bytes) {
        let (number, content) = entry?;
        let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        *place.and_then(|place| parts.get_mut(place)).ok_or(Wrong::Message)? = content;
    }
    Ok(parts)
}

fn only((number, content): (u64, Content<'_>)) -> Result<Content<'_>, Wrong> {
    if number == 1 { Ok(content) } else { Err(Wrong::Message) }
}

fn number(content: Content<'_>) -> Result<i64, Wrong> {
    match content {
        Content::Number(number) => Ok(number.cast_signed()),
        Content::Absent => Ok(0),
        Content::Bytes(_) | Content::Fixed => Err(Wrong::Message),
    }
}

fn bytes_of(content: Content<'_>) -> Result<&[u8], Wrong> {
    match content {
        Content::Bytes(bytes) => Ok(bytes),
        Content::Absent => Ok(&[]),
        Content::Number(_) | Content::Fixed => Err(Wrong::Message),
    }
}

fn text(content: Content<'_>) -> Result<String, Wrong> {
    String::from_utf8(bytes_of(content)?.to_vec()).map_err(|_| Wrong::Message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        assert!(length < 128 && number < 16);
        [&[number << 3 | 2, length], content].concat()
    }

    fn int(number: u8, content: u8) -> Vec<u8> {
        assert!(number < 16 && content < 128);
        vec![number << 3, content]
    }

    fn body(kind: &str, object: &[u8]) -> Vec<u8> {
        let types = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &types), &field(2, object), &field(3, b""), &field(4, b"")].concat()
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
                "metadata": {"name": "tls", "namespace": "shop"},
                "data": {"tls.crt": "/wA="}, "type": "kubernetes.io/tls"
            })
        );
    }

    #[test]
    fn lists_maps_and_numbers_are_read() {
        let metadata = [field(1, b"a"), field(14, b"x"), field(14, b"y"), field(8, &int(1, 7))].concat();
        let label = [field(1, b"k"), field(2, b"v")].concat();
        let metadata = [metadata, field(11, &label), int(7, 3)].concat();
        let object = [field(1, &metadata), int(4, 1)].concat();
        let found = decode(&body("ConfigMap", &object)).unwrap();
        assert_eq!(found["metadata"]["finalizers"], json!(["x", "y"]));
        assert_eq!(found["metadata"]["labels"], json!({"k": "v"}));
        assert_eq!(found["metadata"]["creationTimestamp"], "1970-01-01T00:00:07Z");
        assert_eq!((&found["metadata"]["generation"], &found["immutable"]), (&json!(3), &json!(true)));
    }

    #[test]
    fn ports_quantities_and_structs_are_decoded_like_json() {
        let port = |target: &[u8]| [field(1, b""), int(3, 80), field(4, target), int(5, 0)].concat();
        let ports = [field(1, &port(&[int(1, 1), field(3, b"web")].concat())), field(1, &port(&int(2, 99)))].concat();
        let service = decode(&body("Service", &[field(2, &ports), field(3, &field(1, b""))].concat())).unwrap();
        let expected = json!([{"port": 80, "targetPort": "web"}, {"port": 80, "targetPort": 99}]);
        assert_eq!((&service["spec"]["ports"], &service["status"]), (&expected, &json!({"loadBalancer": {}})));

        let limits = field(1, &[field(1, b"cpu"), field(2, &field(1, b"10m"))].concat());
        let container = [field(1, b"web"), field(8, &limits)].concat();
        // The source of a volume is an embedded message, and JSON has its fields next to the name.
        let volume = [field(1, b"v"), field(2, &field(2, &field(1, b"")))].concat();
        let pod = [field(1, &volume), field(2, &container)].concat();
        // Zero replicas differ from absent replicas; `paused: false` does not differ from absent.
        let spec = [int(1, 0), field(3, &field(2, &pod)), int(7, 0)].concat();
        let deployment = decode(&body("Deployment", &field(2, &spec))).unwrap();
        let container = json!({"name": "web", "resources": {"limits": {"cpu": "10m"}}});
        let pod = json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [container]});
        assert_eq!(deployment["spec"], json!({"replicas": 0, "template": {"spec": pod}}));
    }

    #[test]
    fn fractions_of_seconds_and_user_extras_are_decoded() {
        let renewed = [int(1, 9), int(2, 100)].concat();
        let lease = decode(&body("Lease", &field(2, &field(4, &renewed)))).unwrap();
        assert_eq!(lease["spec"], json!({"renewTime": "1970-01-01T00:00:09.000000Z"}));
        let extra = [field(1, b"k"), field(2, &[field(1, b"x"), field(1, b"y")].concat())].concat();
        let request = decode(&body("CertificateSigningRequest", &field(2, &field(6, &extra)))).unwrap();
        assert_eq!(request["spec"], json!({"extra": {"k": ["x", "y"]}}));
    }

    #[test]
    fn an_unknown_field_is_rejected_by_its_number() {
        let unknown = |message, number| Err(Wrong::Unknown { message, number });
        assert_eq!(decode(&body("ConfigMap", &field(9, b"x"))), unknown("ConfigMap", 9));
        assert_eq!(decode(&body("Service", &field(2, &int(6, 1)))), unknown("ServiceSpec", 6));
        assert_eq!(decode(&[&body("Secret", b"")[..], &field(5, b"x")].concat()), unknown("Unknown", 5));
        assert_eq!(
            unknown("Service", 6).unwrap_err().to_string(),
            "field 6 of Service is not known; the object is accepted as JSON"
        );
        let wrong = |message, number| Err(Wrong::Field { message, number });
        assert_eq!(decode(&body("Secret", &int(3, 1))), wrong("Secret", 3));
        assert_eq!(decode(&body("Secret", &[field(3, b"a"), field(3, b"b")].concat())), wrong("Secret", 3));
        assert_eq!(decode(&body("Secret", &field(2, &field(3, b"x")))), wrong("Secret", 2));
        assert_eq!(decode(&body("Secret", &field(1, &field(8, &field(1, b""))))), wrong("ObjectMeta", 8));
    }

    #[test]
    fn a_malformed_message_is_rejected() {
        assert_eq!(decode(b"{}"), Err(Wrong::Mark));
        assert_eq!(decode(b"k8s\0\x0a"), Err(Wrong::Message));
        assert_eq!(decode(&body("Pod", b"")), Err(Wrong::Kind("Pod".to_owned())));
        let endless = [0xff_u8; 11];
        assert_eq!(decode(&body("Secret", &endless)), Err(Wrong::Message));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic() {
        // Every prefix of a valid body, and every single changed byte.
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
