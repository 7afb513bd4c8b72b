//! Requests that only a node or a controller can serve: the server rejects them with that reason.

use crate::api::{Api, about};
use crate::path::Objects;
use crate::resource::Resource;
use crate::status::{ApiError, Reason};

/// The subresources of a pod that a kubelet serves, and what a pod cannot do without one.
const OF_KUBELETS: [(&str, &str); 5] = [
    ("log", "has no logs"),
    ("exec", "cannot run a command"),
    ("attach", "cannot be attached to"),
    ("portforward", "cannot forward ports"),
    ("proxy", "cannot be reached by a proxy"),
];

/// Rejects a request that needs a node, if the object exists.
pub(super) fn refuse(api: &Api, resource: &Resource, at: &Objects) -> Result<(), ApiError> {
    let Some(subresource) = at.subresource.as_deref() else { return Ok(()) };
    let name = at.name.as_deref().unwrap_or_default();
    let of_kubelet = OF_KUBELETS.iter().find(|(it, _)| *it == subresource);
    let refused = match of_kubelet {
        Some((_, what)) if resource.is_pod() => {
            let message = format!("pod \"{name}\" {what}: this API server has no nodes that run containers");
            ApiError::new(Reason::BadRequest, message)
        }
        _ if resource.has_scale() && subresource == "scale" => {
            const WHY: &str =
                "cannot be scaled: this API server has no nodes and no controllers, so no pod would start";
            ApiError::unavailable_verb(about(resource, name), WHY)
        }
        _ => return Ok(()),
    };
    api.get(&Objects { subresource: None, ..at.clone() })?;
    Err(refused)
}
