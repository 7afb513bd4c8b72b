//! What an administrator asks of the service CA in `ServiceCA`: a rotation, another life, or that it is left alone.

use std::collections::BTreeMap;

use kube_client::{Api, Client, Error};
use perennial_api::operator::ServiceCA;
use perennial_core::catalog::{Catalog, Component};
use perennial_core::service_ca::{BUNDLE, ROW, life};
use perennial_core::snapshot::Settings;

use crate::observe::{Trouble, said, single};

/// What the resource is called.
pub(crate) const SINGLETON: &str = "cluster";
/// Where the CA is.
pub(crate) const NAMESPACE: &str = "openshift-service-ca";
const VALIDITY: &str = "spec.unsupportedConfigOverrides.caConfig.validityDurationForTesting";

/// Reads it into the settings, and says why the service CA is left as it is, where it is: what rests on it goes on, as with the original
/// operator. What makes no sense is a trouble, and stops nothing else.
pub(crate) async fn heed(
    client: &Client,
    catalog: &Catalog,
    settings: &mut Settings,
    troubles: &mut Vec<Trouble>,
) -> Result<BTreeMap<&'static str, String>, Error> {
    let owner = Component::ServiceCa.owner();
    if settings.left_alone.contains(owner) {
        return Ok(BTreeMap::new());
    }
    let found = match single(Api::<ServiceCA>::all(client.clone()), SINGLETON).await {
        Ok(Some(found)) => found,
        // Nobody asks for anything.
        Ok(None) => return Ok(BTreeMap::new()),
        Err(error) => {
            let why = format!("ServiceCA {SINGLETON} could not be read: {}", said(error)?);
            troubles.push(Trouble::new(NAMESPACE, why.clone()));
            freeze(settings);
            return Ok([(owner, why)].into());
        }
    };
    if let Some(state) = found.spec.operator.management_state.as_deref().filter(|it| !is_managed(it)) {
        freeze(settings);
        let why = format!("ServiceCA {SINGLETON}: spec.managementState is {state:?}, and not Managed");
        return Ok([(owner, why)].into());
    }
    let (overrides, invalid) = found.overrides();
    troubles.extend(invalid.map(|it| Trouble::new(NAMESPACE, it.to_string())));
    settings.requested.extend(overrides.reason.map(|reason| (ROW.to_owned(), reason)));
    match life(catalog, overrides.validity.unwrap_or_default(), overrides.is_emergency, settings.time_scale) {
        Ok(seconds) => settings.lives.extend(seconds.map(|seconds| (ROW.to_owned(), seconds))),
        Err(error) => {
            let usual = catalog.row(ROW).map(|row| row.validity.to_string()).unwrap_or_default();
            let text =
                format!("ServiceCA {SINGLETON}: {VALIDITY} is not heeded, and the next one lives {usual}: {error}");
            troubles.push(Trouble::new(NAMESPACE, text));
        }
    }
    Ok(BTreeMap::new())
}

/// Leaves the CA and its bundle as they are.
fn freeze(settings: &mut Settings) {
    settings.frozen.extend([ROW, BUNDLE].map(str::to_owned));
}

/// Whether the operator acts. Some clusters have nothing there.
fn is_managed(state: &str) -> bool {
    matches!(state, "" | "Managed" | "Force")
}
