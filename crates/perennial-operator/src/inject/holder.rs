//! Reads which CA bundle one ConfigMap holds, for `perennial explain`.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{Api, Client, Error};
use perennial_core::catalog::ObjectName;
use perennial_core::injection::{KEY, Target, Wanted};

use super::{BUNDLE, BUNDLE_KEY};

/// A ConfigMap that may hold the service CA bundle.
#[derive(Debug)]
pub struct Holder {
    /// The content that its annotations ask for, if any.
    pub wanted: Option<Wanted>,
    /// Its current content under the key of the bundle.
    pub text: Option<String>,
    /// The service CA bundle; none if it is absent or must not be read.
    pub bundle: Option<String>,
}

impl Holder {
    /// Reads a ConfigMap and the bundle; none if there is no such ConfigMap.
    pub async fn read(client: &Client, object: &ObjectName) -> Result<Option<Holder>, Error> {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &object.namespace);
        let Some(map) = maps.get_opt(&object.name).await? else { return Ok(None) };
        let wanted = Target::ConfigMap.wanted(&object.name, &map.metadata.annotations.unwrap_or_default());
        let text = map.data.and_then(|mut data| data.remove(KEY));
        let bundle = Api::<ConfigMap>::namespaced(client.clone(), BUNDLE.namespace).get_opt(BUNDLE.name).await;
        let bundle = match bundle {
            // The user may be allowed to read the ConfigMap and not the bundle.
            Err(Error::Api(status)) if status.code == 403 => None,
            bundle => bundle?.and_then(|map| map.data?.remove(BUNDLE_KEY)),
        };
        Ok(Some(Holder { wanted, text, bundle }))
    }
}
