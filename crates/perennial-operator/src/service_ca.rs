//! Reads the requests of an administrator in the `ServiceCA` resource: a rotation, another validity, or an unmanaged CA.

use kube_client::{Api, Client, Error};
use perennial_api::operator::ServiceCA;
use perennial_core::catalog::{Catalog, Component, SERVICE_CA_NAMESPACE};
use perennial_core::service_ca::ROW;
use perennial_core::snapshot::{Observed, ServiceCaConfig, Settings, Snapshot};

use crate::observe::{Problem, said, single};

/// The name of the resource.
pub(crate) const SINGLETON: &str = "cluster";
/// The namespace of the CA.
pub(crate) const NAMESPACE: &str = SERVICE_CA_NAMESPACE;
/// The reason why the operator does not read data that only the service CA needs.
pub(crate) const NOT_INCLUDED: &str = "not read, because --controllers does not include service-ca";
const VALIDITY: &str = "spec.unsupportedConfigOverrides.caConfig.validityDurationForTesting";

/// Reads the resource. An invalid field is reported as a problem and does not affect the other fields.
pub(crate) async fn observe(
    client: &Client,
    settings: &Settings,
    problems: &mut Vec<Problem>,
) -> Result<Observed<ServiceCaConfig>, Error> {
    if !settings.manages(Component::ServiceCa) {
        return Ok(Observed::Unknown { why: NOT_INCLUDED.to_owned() });
    }
    let found = match single(Api::<ServiceCA>::all(client.clone()), SINGLETON).await {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Observed::Absent),
        Err(error) => {
            let why = said(error)?;
            problems.push(Problem::new(NAMESPACE, format!("ServiceCA {SINGLETON} could not be read: {why}")));
            return Ok(Observed::Unknown { why });
        }
    };
    let (overrides, invalid) = found.overrides();
    let config = ServiceCaConfig {
        management_state: found.spec.operator.management_state,
        force_rotation_reason: overrides.reason,
        validity_nanoseconds: overrides.validity.and_then(|it| i64::try_from(it.as_nanos()).ok()),
        emergency: overrides.is_emergency,
    };
    if config.is_managed() {
        problems.extend(invalid.map(|it| Problem::new(NAMESPACE, it.to_string())));
    }
    Ok(Observed::Present(config))
}

/// Returns the reason why the requested validity is not applied; none if it is applied.
pub(crate) fn refused_validity(catalog: &Catalog, snapshot: &Snapshot) -> Option<Problem> {
    let row = catalog.row(ROW)?;
    let error = snapshot.validity_override(row).err()?;
    let usual = row.validity;
    let text = format!("ServiceCA {SINGLETON}: {VALIDITY} is ignored, and the next CA is valid for {usual}: {error}");
    Some(Problem::new(NAMESPACE, text))
}
