//! The metadata of a Secret or ConfigMap: its type, labels, annotations and owner.
//!
//! A [`Description`] is complete. It contains each value, or names the fact of the certificate that the value repeats, so
//! the code that writes the object decides nothing. Labels and annotations of other writers stay.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::annotations::{
    DESCRIPTION, HOSTNAMES, ISSUER, MANAGED_TYPE, NOT_AFTER, NOT_BEFORE, OWNING_COMPONENT, REFRESH_PERIOD,
};
use crate::catalog::index::RowPlace;
use crate::catalog::{Annotations, Bundle, Catalog, Layout, Row, Signer, Succession, TimeScale};
use crate::rules::canonical_hosts;
use crate::service_ca::serving;
use crate::snapshot::Service;
use crate::spec::{Host, Validity};

/// The metadata of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// The type of a Secret; none for a ConfigMap.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub secret_type: Option<SecretType>,
    /// The further keys of a Secret; none if they stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, Said>,
    /// The Service that owns the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// The type of a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum SecretType {
    /// One certificate with its key.
    #[serde(rename = "kubernetes.io/tls")]
    Tls,
    /// Any content.
    Opaque,
}

/// The value of an annotation, and when it is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Said {
    /// The value of the annotation.
    pub value: Value,
    /// When it is set.
    #[serde(skip_serializing_if = "When::is_always")]
    pub when: When,
}

/// What the value of an annotation repeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Value {
    /// A fixed text.
    Text(String),
    /// The start of the certificate's validity.
    NotBefore,
    /// The end of the certificate's validity.
    NotAfter,
    /// The common name of the certificate's issuer.
    Issuer,
    /// The names in the certificate.
    Hostnames,
    /// The value of the same annotation on the source of a copy; nothing if the source lacks it.
    Repeated,
}

/// When an annotation is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// With every write.
    Always,
    /// If the annotation is absent or empty: another writer may choose another text.
    IfEmpty,
    /// If the annotation is present and readable. People remove or garble the annotation to request another certificate.
    IfReadable,
}

/// The Service that owns a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// The name of the Service.
    pub name: String,
    /// The uid of the Service.
    pub uid: String,
}

/// The facts of a certificate that a description repeats.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The validity.
    pub validity: Validity,
    /// The common name of the issuer.
    pub issuer: &'a str,
    /// The names.
    pub hosts: &'a [Host],
}

/// Labels or annotations by name.
type Texts = BTreeMap<String, String>;

impl SecretType {
    /// Returns the type as Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            SecretType::Tls => "kubernetes.io/tls",
            SecretType::Opaque => "Opaque",
        }
    }
}

impl When {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    fn is_always(&self) -> bool {
        *self == When::Always
    }
}

impl Description {
    /// Returns the description of a Secret into which this certificate is issued.
    pub fn of_issue(catalog: &Catalog, row: &Row, service: Option<&Service>, scale: TimeScale) -> Description {
        let mut description = Description::of_row(catalog, row, service, When::Always);
        if row.annotations == Annotations::None {
            description.set_owner(catalog, row);
        }
        if let (Annotations::CertificateValidity, Succession::Refresh(refresh)) = (row.annotations, row.succession) {
            description.say(REFRESH_PERIOD, go_duration(refresh.scaled(scale)));
        }
        description
    }

    /// Returns the description of a Secret whose certificate stays, without the refresh period, which is set at issue.
    pub fn of_managed(catalog: &Catalog, row: &Row, service: Option<&Service>) -> Description {
        Description::of_row(catalog, row, service, When::IfReadable)
    }

    /// Returns the description of a Secret that holds a copy of the certificate.
    pub fn of_copy(catalog: &Catalog, row: &Row) -> Description {
        let mut description = Description::of_row(catalog, row, None, When::Always);
        description.layout = None;
        let repeated = Said { value: Value::Repeated, when: When::Always };
        description.annotations.insert(REFRESH_PERIOD.to_owned(), repeated);
        description
    }

    /// Returns the description of a Secret in this place whose certificate stays or is a copy.
    pub fn of_place(catalog: &Catalog, place: &RowPlace<'_>, service: Option<&Service>) -> Description {
        match place.is_copy {
            true => Description::of_copy(catalog, place.row),
            false => Description::of_managed(catalog, place.row, service),
        }
    }

    /// Merges the descriptions of two bundles in one ConfigMap.
    #[must_use]
    pub(crate) fn and(mut self, other: Description) -> Description {
        self.labels.extend(other.labels);
        self.annotations.extend(other.annotations);
        self
    }

    /// Returns the description of a Secret that holds copies of many certificates.
    pub fn of_gathered() -> Description {
        Description { secret_type: Some(SecretType::Opaque), ..Description::default() }
    }

    /// Returns the description of a ConfigMap that holds this bundle.
    pub fn of_bundle(catalog: &Catalog, bundle: Option<&Bundle>) -> Description {
        let mut description = Description::default();
        if let Some(bundle) = bundle {
            description.say(OWNING_COMPONENT, bundle.component.owner().to_owned());
        }
        description.say(DESCRIPTION, "CA bundle".to_owned());
        let has_none = |signer: &str| catalog.row(signer).is_some_and(|row| row.annotations == Annotations::None);
        if !bundle.is_some_and(|bundle| catalog.signers_in(bundle).into_iter().all(has_none)) {
            description.labels.insert(MANAGED_TYPE.to_owned(), "ca-bundle".to_owned());
        }
        description
    }

    fn of_row(catalog: &Catalog, row: &Row, service: Option<&Service>, boundaries: When) -> Description {
        let (secret_type, layout) = (Some(SecretType::Tls), Some(row.layout));
        let mut description = Description { secret_type, layout, ..Description::default() };
        match row.annotations {
            // Perennial does not change the metadata of such objects.
            Annotations::None => {}
            Annotations::CertificateValidity => {
                description.set_owner(catalog, row);
                if row.usage.serves() {
                    description.repeat(HOSTNAMES, Value::Hostnames, When::Always);
                }
                for (name, value) in
                    [(NOT_BEFORE, Value::NotBefore), (NOT_AFTER, Value::NotAfter), (ISSUER, Value::Issuer)]
                {
                    description.repeat(name, value, boundaries);
                }
                let kind = if row.signer == Signer::Itself { "signer" } else { "target" };
                description.labels.insert(MANAGED_TYPE.to_owned(), kind.to_owned());
            }
            Annotations::ServiceServing => {
                service.into_iter().for_each(|it| description.set_service(row, it, boundaries));
            }
        }
        description
    }

    /// Sets the owning component and the description.
    fn set_owner(&mut self, catalog: &Catalog, row: &Row) {
        self.say(OWNING_COMPONENT, row.component.owner().to_owned());
        self.say(DESCRIPTION, catalog.logical(row).purpose.to_owned());
    }

    /// Sets the annotations that name the Service.
    fn set_service(&mut self, row: &Row, service: &Service, boundaries: When) {
        let Service { name, uid, family, .. } = service;
        for (key, text) in serving::origin_of(*family, name, uid) {
            self.say(&key, text);
        }
        for key in serving::expiry_names() {
            self.repeat(&key, Value::NotAfter, boundaries);
        }
        let purpose = format!("serving certificate of the Service {name}, signed by the service CA");
        for (key, text) in [(OWNING_COMPONENT, row.component.owner().to_owned()), (DESCRIPTION, purpose)] {
            self.repeat(key, Value::Text(text), When::IfEmpty);
        }
        self.owner = Some(Owner { name: name.clone(), uid: uid.clone() });
    }

    fn say(&mut self, name: &str, text: String) {
        self.repeat(name, Value::Text(text), When::Always);
    }

    fn repeat(&mut self, name: &str, value: Value, when: When) {
        self.annotations.insert(name.to_owned(), Said { value, when });
    }

    /// Sets labels and annotations. `source` contains the annotations of the object of which this one is a copy.
    pub fn set(&self, labels: &mut Texts, annotations: &mut Texts, facts: Option<Facts<'_>>, source: Option<&Texts>) {
        labels.extend(self.labels.clone());
        for (name, said) in &self.annotations {
            let value = match (&said.value, facts) {
                (Value::Text(text), _) => Some(text.clone()),
                (Value::Repeated, _) => match source {
                    Some(source) => source.get(name).cloned(),
                    // A value that was copied before stays.
                    None => continue,
                },
                (Value::NotBefore, Some(facts)) => Some(facts.validity.not_before.to_string()),
                (Value::NotAfter, Some(facts)) => Some(facts.validity.not_after.to_string()),
                (Value::Issuer, Some(facts)) => Some(facts.issuer.to_owned()),
                (Value::Hostnames, Some(facts)) => Some(hostnames(facts.hosts)),
                (_, None) => continue,
            };
            let found = annotations.get(name).map(String::as_str).unwrap_or_default();
            let is_set = match said.when {
                When::Always => true,
                When::IfEmpty => found.is_empty(),
                When::IfReadable => is_readable(&said.value, found),
            };
            match value {
                Some(value) if is_set && !is_same(&said.value, found, &value) => {
                    annotations.insert(name.clone(), value);
                }
                None => drop(annotations.remove(name)),
                Some(_) => {}
            }
        }
    }
}

fn is_readable(value: &Value, found: &str) -> bool {
    match value {
        Value::NotBefore | Value::NotAfter => found.parse::<Timestamp>().is_ok(),
        _ => !found.is_empty(),
    }
}

/// Returns true if both values mean the same, such as the same time in another notation.
fn is_same(value: &Value, found: &str, wanted: &str) -> bool {
    match (value, found.parse::<Timestamp>(), wanted.parse::<Timestamp>()) {
        (Value::NotBefore | Value::NotAfter, Ok(found), Ok(wanted)) => found == wanted,
        _ => found == wanted,
    }
}

fn hostnames(hosts: &[Host]) -> String {
    let mut hosts: Vec<String> = canonical_hosts(hosts).iter().map(ToString::to_string).collect();
    hosts.sort();
    hosts.dedup();
    hosts.join(",")
}

/// Returns hours, minutes and seconds, as Go writes a duration.
fn go_duration(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let text = |seconds| go_duration(SignedDuration::from_secs(seconds));
        assert_eq!([0, 59, 61, 3600, 1_296_000].map(text), ["0s", "59s", "1m1s", "1h0m0s", "360h0m0s"]);
    }

    fn facts(end: &str) -> Facts<'static> {
        let validity =
            Validity { not_before: "2026-11-15T00:00:00Z".parse().unwrap(), not_after: end.parse().unwrap() };
        Facts { validity, issuer: "service-ca", hosts: &[] }
    }

    fn row(id: &str) -> &'static Row {
        Catalog::builtin().row(id).unwrap()
    }

    /// Returns the annotations after the description was set on an object with the annotations `found`.
    fn set(description: &Description, found: &[(&str, &str)], end: &str) -> Texts {
        let mut annotations = found.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        description.set(&mut Texts::new(), &mut annotations, Some(facts(end)), None);
        annotations
    }

    const END: &str = "2028-11-15T00:00:00Z";

    #[test]
    fn a_service_secret_has_its_expiry_in_both_families_and_its_origin_in_one() {
        let service = Service {
            name: "web".to_owned(),
            uid: "u1".to_owned(),
            family: crate::annotations::Family::Alpha,
            ..Service::default()
        };
        let row = row("service-serving");
        let issued = Description::of_issue(Catalog::builtin(), row, Some(&service), TimeScale::FULL);
        let said = set(&issued, &[(OWNING_COMPONENT, "theirs")], END);
        assert_eq!(said["service.beta.openshift.io/expiry"], END);
        assert_eq!(said["service.alpha.openshift.io/expiry"], END);
        assert_eq!(said["service.alpha.openshift.io/originating-service-uid"], "u1");
        assert_eq!(said["service.alpha.openshift.io/originating-service-name"], "web");
        assert!(!said.contains_key("service.beta.openshift.io/originating-service-uid"));
        // Another writer may choose another owner.
        assert_eq!(said[OWNING_COMPONENT], "theirs");
        assert!(said[DESCRIPTION].contains("the Service web"));
        assert_eq!(issued.owner, Some(Owner { name: "web".to_owned(), uid: "u1".to_owned() }));
        let kept = Description::of_managed(Catalog::builtin(), row, Some(&service));
        let said = set(&kept, &[("service.alpha.openshift.io/expiry", "2020-01-01T00:00:00Z")], END);
        assert_eq!(said["service.alpha.openshift.io/expiry"], END);
        // An annotation that was removed to request another certificate is not restored.
        assert!(!said.contains_key("service.beta.openshift.io/expiry"));
    }

    #[test]
    fn an_annotation_that_was_removed_or_garbled_to_request_a_certificate_is_not_restored() {
        let row = row("aggregator-client");
        let kept = Description::of_managed(Catalog::builtin(), row, None);
        for found in [&[][..], &[(NOT_AFTER, "")], &[(NOT_AFTER, "soon")]] {
            let said = set(&kept, found, END);
            assert_eq!(said.get(NOT_AFTER).map(String::as_str), found.first().map(|it| it.1), "{found:?}");
        }
        // A wrong value is corrected; the same time in another notation is not wrong.
        assert_eq!(set(&kept, &[(NOT_AFTER, "2020-01-01T00:00:00Z"), (ISSUER, "other")], END)[NOT_AFTER], END);
        let same = "2028-11-15T01:00:00+01:00";
        assert_eq!(set(&kept, &[(NOT_AFTER, same)], END)[NOT_AFTER], same);
        assert_eq!(set(&kept, &[(ISSUER, "other")], END)[ISSUER], "service-ca");
        // On a copy such an annotation is no request.
        assert_eq!(set(&Description::of_copy(Catalog::builtin(), row), &[(NOT_AFTER, "soon")], END)[NOT_AFTER], END);
    }

    #[test]
    fn a_copy_repeats_the_refresh_period_of_its_source() {
        let copy = Description::of_copy(Catalog::builtin(), row("aggregator-client"));
        let set = |source: Option<&[(&str, &str)]>| {
            let mut annotations = Texts::from([(REFRESH_PERIOD.to_owned(), "1h0m0s".to_owned())]);
            let source: Option<Texts> =
                source.map(|it| it.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect());
            copy.set(&mut Texts::new(), &mut annotations, Some(facts(END)), source.as_ref());
            annotations.get(REFRESH_PERIOD).cloned()
        };
        assert_eq!(set(Some(&[(REFRESH_PERIOD, "2h0m0s")])).as_deref(), Some("2h0m0s"));
        assert_eq!(set(Some(&[])), None);
        assert_eq!(set(None).as_deref(), Some("1h0m0s"));
    }
}
