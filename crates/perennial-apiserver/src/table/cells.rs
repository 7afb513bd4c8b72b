//! Table cells of built-in objects with a text from several fields.

use serde_json::Value;

use super::span;
use crate::resource::Cell;

/// Returns the text of a cell.
pub(super) fn text(cell: Cell, object: &Value) -> String {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    match cell {
        Cell::CreatedAt => string(&metadata["creationTimestamp"]).to_owned(),
        Cell::NodeStatus => node_status(spec, status),
        Cell::NodeRoles => node_roles(&metadata["labels"]),
        Cell::PodReady => {
            let ready = list(&status["containerStatuses"]).iter().filter(|it| it["ready"] == true).count();
            format!("{ready}/{}", list(&spec["containers"]).len())
        }
        Cell::PodStatus => pod_status(metadata, status),
        Cell::PodRestarts => {
            let restarts = list(&status["containerStatuses"]).iter().filter_map(|it| it["restartCount"].as_i64());
            restarts.fold(0, i64::saturating_add).to_string()
        }
        Cell::DeploymentReady => {
            format!("{}/{}", status["readyReplicas"].as_i64().unwrap_or(0), spec["replicas"].as_i64().unwrap_or(1))
        }
        Cell::Containers => joined(list(&spec["template"]["spec"]["containers"]), "name", ""),
        Cell::Images => joined(list(&spec["template"]["spec"]["containers"]), "image", ""),
        Cell::DeploymentSelector => labels(&spec["selector"]["matchLabels"]),
        Cell::ServiceSelector => labels(&spec["selector"]),
        Cell::ServiceAddresses => service_addresses(spec, status),
        Cell::ServicePorts => service_ports(list(&spec["ports"])),
        Cell::RequestedDuration => spec["expirationSeconds"].as_i64().map_or_else(|| NONE.to_owned(), span),
        Cell::RequestCondition => request_condition(status),
        Cell::BoundRole => kind_and_name(&object["roleRef"]),
        Cell::ApiServer if spec["service"].is_object() => {
            format!("{}/{}", string(&spec["service"]["namespace"]), string(&spec["service"]["name"]))
        }
        Cell::ApiServer => "Local".to_owned(),
        Cell::ApiAvailable => match condition(status, "Available") {
            Some(found) if found["status"] == "True" => "True".to_owned(),
            Some(found) => format!("{} ({})", string(&found["status"]), string(&found["reason"])),
            None => "Unknown".to_owned(),
        },
        Cell::EventObject => kind_and_name(&object["involvedObject"]).to_lowercase(),
        Cell::EventRegarding => kind_and_name(&object["regarding"]).to_lowercase(),
    }
}

const NONE: &str = "<none>";

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Joins a field of every entry, or returns another text if there is none.
fn joined(entries: &[Value], field: &str, otherwise: &str) -> String {
    let found: Vec<&str> = entries.iter().filter_map(|entry| entry[field].as_str()).collect();
    if found.is_empty() { otherwise.to_owned() } else { found.join(",") }
}

fn kind_and_name(reference: &Value) -> String {
    format!("{}/{}", string(&reference["kind"]), string(&reference["name"]))
}

/// `app=web,tier=front`.
fn labels(labels: &Value) -> String {
    let Some(labels) = labels.as_object().filter(|labels| !labels.is_empty()) else { return NONE.to_owned() };
    let mut pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={}", string(value))).collect();
    pairs.sort_unstable();
    pairs.join(",")
}

fn condition<'v>(status: &'v Value, kind: &str) -> Option<&'v Value> {
    list(&status["conditions"]).iter().find(|it| it["type"] == kind)
}

fn node_status(spec: &Value, status: &Value) -> String {
    let ready = match condition(status, "Ready") {
        Some(found) if found["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let rest = if spec["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{ready}{rest}")
}

fn node_roles(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None => (key == "kubernetes.io/role").then(|| string(value).to_owned()),
    };
    let mut roles: Vec<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { NONE.to_owned() } else { roles.join(",") }
}

/// Returns why a container does not run, or else the phase.
fn pod_status(metadata: &Value, status: &Value) -> String {
    if metadata["deletionTimestamp"].is_string() {
        return "Terminating".to_owned();
    }
    let reason = |it: &Value| {
        let reasons = [&it["state"]["waiting"]["reason"], &it["state"]["terminated"]["reason"]];
        reasons.into_iter().find_map(Value::as_str).map(ToOwned::to_owned)
    };
    let of_container = list(&status["containerStatuses"]).iter().find_map(reason);
    let of_pod = status["reason"].as_str().map(ToOwned::to_owned);
    of_container.or(of_pod).unwrap_or_else(|| string(&status["phase"]).to_owned())
}

fn service_addresses(spec: &Value, status: &Value) -> String {
    let external: Vec<&str> = list(&spec["externalIPs"]).iter().filter_map(Value::as_str).collect();
    match string(&spec["type"]) {
        "ExternalName" => string(&spec["externalName"]).to_owned(),
        "LoadBalancer" => {
            let ingress = list(&status["loadBalancer"]["ingress"]).iter();
            let given = ingress.filter_map(|it| it["ip"].as_str().or_else(|| it["hostname"].as_str()));
            let all: Vec<&str> = given.chain(external).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ if external.is_empty() => NONE.to_owned(),
        _ => external.join(","),
    }
}

/// `80:30080/TCP,443/TCP`.
fn service_ports(ports: &[Value]) -> String {
    let port = |it: &Value| {
        let node = it["nodePort"].as_i64().filter(|port| *port > 0).map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}{node}/{}", it["port"], it["protocol"].as_str().unwrap_or("TCP"))
    };
    if ports.is_empty() { NONE.to_owned() } else { ports.iter().map(port).collect::<Vec<_>>().join(",") }
}

fn request_condition(status: &Value) -> String {
    let is = |kind: &str| condition(status, kind).is_some();
    let decision = match (is("Denied"), is("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if is("Failed") { ",Failed" } else { "" };
    let issued = if status["certificate"].as_str().is_some_and(|it| !it.is_empty()) { ",Issued" } else { "" };
    format!("{decision}{failed}{issued}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(cell: Cell, object: &Value, expected: &str) {
        assert_eq!(text(cell, object), expected, "{cell:?}");
    }

    #[test]
    fn a_node_has_a_status_and_roles() {
        let node = json!({
            "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/master": "", "a": "b"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}
        });
        check(Cell::NodeStatus, &node, "Ready,SchedulingDisabled");
        check(Cell::NodeRoles, &node, "master,worker");
        let down = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        check(Cell::NodeStatus, &down, "NotReady");
        check(Cell::NodeStatus, &json!({}), "Unknown");
        check(Cell::NodeRoles, &json!({}), "<none>");
    }

    #[test]
    fn the_status_of_a_pod_comes_from_its_containers() {
        let pod = json!({
            "spec": {"containers": [{}, {}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"ready": true, "restartCount": 1},
                {"ready": false, "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
        });
        check(Cell::PodReady, &pod, "1/2");
        check(Cell::PodStatus, &pod, "CrashLoopBackOff");
        check(Cell::PodRestarts, &pod, "3");
        check(Cell::PodStatus, &json!({"status": {"phase": "Pending"}}), "Pending");
        check(Cell::PodStatus, &json!({"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z"}}), "Terminating");
    }

    #[test]
    fn a_service_shows_its_addresses_and_ports() {
        let service = json!({"spec": {
            "type": "ClusterIP", "selector": {"tier": "front", "app": "web"},
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}});
        check(Cell::ServicePorts, &service, "80:30080/TCP,53/UDP");
        check(Cell::ServiceAddresses, &service, "<none>");
        check(Cell::ServiceSelector, &service, "app=web,tier=front");
        check(Cell::ServiceAddresses, &json!({"spec": {"type": "LoadBalancer"}}), "<pending>");
        check(Cell::ServiceAddresses, &json!({"spec": {"externalIPs": ["192.0.2.1"]}}), "192.0.2.1");
        check(Cell::ServicePorts, &json!({}), "<none>");
    }

    #[test]
    fn a_certificate_request_shows_its_condition() {
        let request = |conditions: Value, certificate: &str| json!({"spec": {"expirationSeconds": 86_400}, "status": {"conditions": conditions, "certificate": certificate}});
        check(Cell::RequestCondition, &request(json!([]), ""), "Pending");
        check(Cell::RequestCondition, &request(json!([{"type": "Approved"}]), "eA=="), "Approved,Issued");
        check(Cell::RequestCondition, &request(json!([{"type": "Denied"}, {"type": "Failed"}]), ""), "Denied,Failed");
        check(Cell::RequestedDuration, &request(json!([]), ""), "24h");
        check(Cell::RequestedDuration, &json!({}), "<none>");
    }

    #[test]
    fn other_cells_combine_several_fields() {
        let deployment = json!({
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}}},
            "status": {"readyReplicas": 2}
        });
        check(Cell::DeploymentReady, &deployment, "2/3");
        check(Cell::Images, &deployment, "x,y");
        check(Cell::DeploymentSelector, &deployment, "app=web");
        check(Cell::BoundRole, &json!({"roleRef": {"kind": "Role", "name": "reader"}}), "Role/reader");
        check(Cell::EventObject, &json!({"involvedObject": {"kind": "Secret", "name": "a"}}), "secret/a");
        check(Cell::ApiServer, &json!({"spec": {"service": {"namespace": "a", "name": "b"}}}), "a/b");
        check(
            Cell::ApiAvailable,
            &json!({"status": {"conditions": [
            {"type": "Available", "status": "False", "reason": "MissingEndpoints"}]}}),
            "False (MissingEndpoints)",
        );
    }
}
